#include "data/transform_config.h"

#include "config/load.h"
#include "config/schema.h"
#include "config/write.h"

namespace trainopt {

/// 224 or [height, width]. `is_single` records which was written, because resize takes 224 as the shorter side.
struct WrittenSize {
  int64_t height = 0, width = 0;
  bool is_single = true;
};
/// One number for all channels, or three for red, green and blue.
struct WrittenChannels {
  std::array<double, 3> values{};
};

template <>
struct Form<WrittenSize> {
  static constexpr Bounds kSide{1, 16384};
  static std::string type_text() { return "224 or [height, width]"; }
  static Json schema(const Bounds&) {
    return {{"anyOf", Json::array({Form<int64_t>::schema(kSide), Form<std::array<int64_t, 2>>::schema(kSide)})}};
  }
  static std::optional<WrittenSize> read(const Value& value, Location location) {
    location.bounds = kSide;
    if (value.is_list()) {
      const auto sides = Form<std::array<int64_t, 2>>::read(value, location);
      return sides ? std::optional(WrittenSize{(*sides)[0], (*sides)[1], false}) : std::nullopt;
    }
    const auto side = Form<int64_t>::read(value, location);
    return side ? std::optional(WrittenSize{*side, *side, true}) : std::nullopt;
  }
  static Value write(const WrittenSize& size) {
    return size.is_single ? Form<int64_t>::write(size.height)
                          : Form<std::array<int64_t, 2>>::write({size.height, size.width});
  }
};

template <>
struct Form<WrittenChannels> {
  static std::string type_text() { return "a number or a list of three"; }
  static Json schema(const Bounds& bounds) {
    return {{"anyOf", Json::array({Form<double>::schema(bounds), Form<std::array<double, 3>>::schema(bounds)})}};
  }
  static std::optional<WrittenChannels> read(const Value& value, const Location& location) {
    if (value.is_list()) {
      const auto three = Form<std::array<double, 3>>::read(value, location);
      return three ? std::optional(WrittenChannels{*three}) : std::nullopt;
    }
    const auto one = Form<double>::read(value, location);
    return one ? std::optional(WrittenChannels{{*one, *one, *one}}) : std::nullopt;
  }
  static Value write(const WrittenChannels& channels) { return Form<std::array<double, 3>>::write(channels.values); }
};

namespace {

/// The parameters of each transform, for describe(); the first one may be given alone, without its name.
struct ResizeParameters {
  static constexpr std::string_view kName = "resize";
  static constexpr std::array<std::string_view, 1> kNeeded{"size"};
  WrittenSize size{};
  TransformConfig config() const {
    if (size.is_single) return ResizeConfig{size.height, {0, 0}};
    return ResizeConfig{std::nullopt, {size.height, size.width}};
  }
};
template <class V>
void describe(V& v, ResizeParameters& c) {
  v.field("size", c.size, "Length of the shorter side, or the exact [height, width].");
}

struct CenterCropParameters {
  static constexpr std::string_view kName = "center_crop";
  static constexpr std::array<std::string_view, 1> kNeeded{"size"};
  WrittenSize size{};
  TransformConfig config() const { return CenterCropConfig{size.height, size.width}; }
};
template <class V>
void describe(V& v, CenterCropParameters& c) {
  v.field("size", c.size, "Side length of a square, or [height, width].");
}

struct RandomCropParameters {
  static constexpr std::string_view kName = "random_crop";
  static constexpr std::array<std::string_view, 1> kNeeded{"size"};
  WrittenSize size{};
  int64_t padding = 0;
  TransformConfig config() const { return RandomCropConfig{size.height, size.width, padding}; }
};
template <class V>
void describe(V& v, RandomCropParameters& c) {
  v.field("size", c.size, "Side length of a square, or [height, width].");
  v.field("padding", c.padding, "Black pixels added on every side before the crop.", in_range(0, 16384));
}

struct RandomResizedCropParameters {
  static constexpr std::string_view kName = "random_resized_crop";
  static constexpr std::array<std::string_view, 1> kNeeded{"size"};
  WrittenSize size{};
  std::array<double, 2> scale = RandomResizedCropConfig().scale, ratio = RandomResizedCropConfig().ratio;
  TransformConfig config() const { return RandomResizedCropConfig{size.height, size.width, scale, ratio}; }
};
template <class V>
void describe(V& v, RandomResizedCropParameters& c) {
  v.field("size", c.size, "Side length of a square, or [height, width].");
  v.field("scale", c.scale, "Minimum and maximum fraction of the image's area.",
          Bounds{.low = 0, .high = 1, .low_included = false});
  v.field("ratio", c.ratio, "Minimum and maximum aspect ratio, width ÷ height.", above(0));
}

struct RandomHorizontalFlipParameters {
  static constexpr std::string_view kName = "random_horizontal_flip";
  static constexpr std::array<std::string_view, 0> kNeeded{};
  double p = RandomHorizontalFlipConfig().p;
  TransformConfig config() const { return RandomHorizontalFlipConfig{p}; }
};
template <class V>
void describe(V& v, RandomHorizontalFlipParameters& c) {
  v.field("p", c.p, "Probability of a flip.", in_range(0.0, 1.0));
}

struct NormalizeParameters {
  static constexpr std::string_view kName = "normalize";
  static constexpr std::array<std::string_view, 2> kNeeded{"mean", "std"};
  WrittenChannels mean{{0, 0, 0}}, std{{1, 1, 1}};
  TransformConfig config() const { return NormalizeConfig{mean.values, std.values}; }
};
template <class V>
void describe(V& v, NormalizeParameters& c) {
  v.field("mean", c.mean, "Per-channel mean, subtracted after scaling to [0, 1].");
  v.field("std", c.std, "Per-channel standard deviation to divide by.", above(0));
}

/// Calls `use` with each kind's parameters.
template <class Use>
void for_each_kind(Use use) {
  use(ResizeParameters()), use(CenterCropParameters()), use(RandomCropParameters()), use(RandomResizedCropParameters()),
      use(RandomHorizontalFlipParameters()), use(NormalizeParameters());
}

std::vector<std::string_view> all_names() {
  std::vector<std::string_view> names;
  for_each_kind([&](auto parameters) { names.push_back(parameters.kName); });
  return names;
}

ResizeParameters parameters_of(const ResizeConfig& c) {
  return {c.shorter_side ? WrittenSize{*c.shorter_side, *c.shorter_side, true}
                         : WrittenSize{c.exact.first, c.exact.second, false}};
}
WrittenSize size_of(int64_t height, int64_t width) { return {height, width, height == width}; }
CenterCropParameters parameters_of(const CenterCropConfig& c) { return {size_of(c.height, c.width)}; }
RandomCropParameters parameters_of(const RandomCropConfig& c) { return {size_of(c.height, c.width), c.padding}; }
RandomResizedCropParameters parameters_of(const RandomResizedCropConfig& c) {
  return {size_of(c.height, c.width), c.scale, c.ratio};
}
RandomHorizontalFlipParameters parameters_of(const RandomHorizontalFlipConfig& c) { return {c.p}; }
NormalizeParameters parameters_of(const NormalizeConfig& c) { return {{c.mean}, {c.std}}; }

bool check_order(const Value& value, const std::array<double, 2>& range, const char* name, const Location& location) {
  if (range[0] <= range[1]) return true;
  location.problem(value, fmt::format("{} must be [min, max]: [{}, {}]", name, range[0], range[1]));
  return false;
}

template <class Parameters>
std::optional<TransformConfig> read_parameters(const Value& input, Parameters parameters, const Location& location) {
  const size_t problems_before = location.problems->size();
  const Outline outline = outline_of(parameters);
  Value map = input;
  if (!input.is_map()) {
    map = empty_map();
    map.mark = input.mark;
    if (!input.is_null()) map.find_or_add({outline.front().name, input.mark}) = input;
  }
  read_map(map, outline, location.key, {outline, *location.problems});
  for (const auto needed : parameters.kNeeded)
    if (const Value* value = map.find(needed); !value || value->is_null())
      location.problem(input, fmt::format("{} needs {}", parameters.kName, needed));
  if constexpr (requires { parameters.scale; }) {
    check_order(input, parameters.scale, "scale", location);
    check_order(input, parameters.ratio, "ratio", location);
  }
  if (location.problems->size() != problems_before) return std::nullopt;
  return parameters.config();
}

}  // namespace

std::string Form<TransformConfig>::type_text() { return "transform"; }

Json Form<TransformConfig>::schema(const Bounds&) {
  Json kinds = Json::array();
  for_each_kind([&](auto parameters) {
    const Outline outline = outline_of(parameters);
    Json map = map_schema(outline);
    for (const auto needed : parameters.kNeeded) {
      map["required"].push_back(needed);
      map["properties"][std::string(needed)].erase("default");
    }
    Json inner = {{"anyOf", Json::array({map})}};
    if (parameters.kNeeded.size() <= 1) inner["anyOf"].push_back(outline.front().schema());
    kinds.push_back({{"type", "object"},
                     {"properties", {{std::string(parameters.kName), inner}}},
                     {"required", Json::array({parameters.kName})},
                     {"additionalProperties", false}});
    if (parameters.kNeeded.empty()) kinds.push_back({{"const", parameters.kName}});
  });
  return {{"anyOf", kinds}};
}

std::optional<TransformConfig> Form<TransformConfig>::read(const Value& value, const Location& location) {
  Value name = value, parameters;
  parameters.mark = value.mark;
  if (value.is_map()) {
    if (value.keys.size() != 1) {
      location.problem(
          value, fmt::format("must be one transform, such as 'resize: 224': a map of {} keys", value.keys.size()));
      return std::nullopt;
    }
    name = quoted(value.keys[0].name);
    name.mark = value.keys[0].mark;
    parameters = value.items[0];
  }
  const auto names = all_names();
  const auto kind = read_word(name, location, names, names);
  if (!kind) return std::nullopt;
  std::optional<TransformConfig> read;
  const Location inside{join_path(location.key, names[*kind]), {}, location.problems};
  for_each_kind([&](auto kind_parameters) {
    if (kind_parameters.kName == names[*kind]) read = read_parameters(parameters, kind_parameters, inside);
  });
  return read;
}

Value Form<TransformConfig>::write(const TransformConfig& transform) {
  return std::visit(
      [](const auto& config) {
        auto parameters = parameters_of(config);
        Value inner = value_of(outline_of(parameters));
        if (inner.items.size() == 1) inner = Value(inner.items.front());
        Value map = empty_map();
        map.set(std::string(parameters.kName), std::move(inner));
        return map;
      },
      transform);
}

}  // namespace trainopt
