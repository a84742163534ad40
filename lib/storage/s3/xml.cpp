#include "storage/s3/xml.h"

#include "base/error.h"

#include <pugixml.hpp>

#include <charconv>

namespace trainopt {
namespace {

[[noreturn]] void refuse_list(const std::string& why) {
  throw UserError(fmt::format("the server's list of objects cannot be read: {}", why), ExitCode::data);
}

/// "%2F" → "/", "+" → " ".
std::string url_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    unsigned int byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2)
      refuse_list("a key is not URL-encoded, as the list says");
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

/// False for what no server of S3 sends: a document type, another encoding than UTF-8. A text that is only white space
/// is kept, because a key may be a space.
bool load(pugi::xml_document& document, std::string_view xml) {
  constexpr unsigned kHow = pugi::parse_default | pugi::parse_ws_pcdata_single | pugi::parse_doctype;
  if (!document.load_buffer(xml.data(), xml.size(), kHow, pugi::encoding_utf8)) return false;
  for (const pugi::xml_node node : document.children())
    if (node.type() == pugi::node_doctype) return false;
  return true;
}

/// All text of the element's one child with this name; null if there is none.
std::optional<std::string> text_in(const pugi::xml_node& parent, const char* name) {
  const pugi::xml_node child = parent.child(name);
  if (!child) return {};
  if (child.next_sibling(name)) refuse_list(fmt::format("it has two {} in a {}", name, parent.name()));
  std::string text;
  for (const pugi::xml_node part : child.children()) {
    if (part.type() == pugi::node_element) refuse_list(fmt::format("its {} is no text", name));
    text += part.value();
  }
  return text;
}

ListedObject object_in(const pugi::xml_node& contents, bool is_encoded) {
  const std::string key = text_in(contents, "Key").value_or(""), size = text_in(contents, "Size").value_or("");
  ListedObject object{.key = is_encoded ? url_decoded(key) : key, .etag = text_in(contents, "ETag").value_or("")};
  if (object.key.empty()) refuse_list("an object has no key");
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), object.bytes);
  if (error != std::errc() || end != size.data() + size.size() || object.bytes < 0)
    refuse_list("an object's size is no number");
  return object;
}

}  // namespace

ObjectList parse_object_list(std::string_view xml) {
  pugi::xml_document document;
  if (!load(document, xml)) refuse_list("it is no XML of S3");
  const pugi::xml_node root = document.child("ListBucketResult");
  if (!root) refuse_list("it is no ListBucketResult");
  const std::string encoding = text_in(root, "EncodingType").value_or("");
  if (!encoding.empty() && encoding != "url") refuse_list("its EncodingType is not url");
  ObjectList list;
  for (const pugi::xml_node contents : root.children("Contents"))
    list.objects.push_back(object_in(contents, !encoding.empty()));
  for (const pugi::xml_node folder : root.children("CommonPrefixes")) {
    const std::string prefix = text_in(folder, "Prefix").value_or("");
    list.folders.push_back(encoding.empty() ? prefix : url_decoded(prefix));
  }
  const std::string more = text_in(root, "IsTruncated").value_or("");
  if (more != "true" && more != "false") refuse_list("it does not say whether it continues");
  if (more == "true") {
    list.next = text_in(root, "NextContinuationToken");
    if (!list.next || list.next->empty()) refuse_list("it continues, and does not say where");
  }
  return list;
}

S3Error parse_s3_error(std::string_view xml) {
  pugi::xml_document document;
  if (!load(document, xml)) return {};
  pugi::xml_node root = document.child("Error");
  if (!root) root = document.child("ErrorResponse").child("Error");  // the Security Token Service's form
  return {.code = root.child_value("Code"),
          .message = root.child_value("Message"),
          .region = root.child_value("Region"),
          .request_id = root.child_value("RequestId")};
}

}  // namespace trainopt
