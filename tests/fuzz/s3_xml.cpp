// XML answers of S3: a list of objects that could be read, or an error; and of the body of a refused request as much as
// it has.
#include "storage/s3/xml.h"

#include "base/error.h"
#include "support.h"

using namespace trainopt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view xml = as_text(data, size);
  try {
    const ObjectList list = parse_object_list(xml);
    size_t bytes = 0;
    for (const ListedObject& object : list.objects) {
      FUZZ_CHECK(!object.key.empty() && object.bytes >= 0);
      bytes += object.key.size() + object.etag.size();
    }
    FUZZ_CHECK(!list.next || !list.next->empty());
    FUZZ_CHECK(bytes <= size);  // no entity makes it longer
  } catch (const UserError& error) {
    FUZZ_CHECK(error.code() == ExitCode::data && std::string_view(error.what()).size() < 1000);
  }
  const S3Error error = parse_s3_error(xml);
  FUZZ_CHECK(error.code.size() + error.message.size() + error.region.size() + error.request_id.size() <= size);
  return 0;
}
