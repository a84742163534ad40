#include "train/bad_samples.h"

#include "train/checkpoint/archive.h"

namespace trainopt {
namespace {

constexpr const char *kBadSamples = "bad_samples", *kTraining = "training", *kEvaluation = "evaluation";

void add_lines(Json& all, const char* set, const std::vector<RefusedSample>& samples) {
  for (const auto& [sample, name, reason] : samples)
    all.push_back({{"sample", sample}, {"name", name}, {"reason", reason}, {"set", set}});
}

RefusedSample refused_sample_from(const Json& json) {
  return {.sample = json.at("sample").get<int64_t>(),
          .name = json.at("name").get<std::string>(),
          .reason = json.at("reason").get<std::string>()};
}

/// Lines for the samples that this rank found.
Json own_lines(const BadSamples& bad) {
  Json all = Json::array();
  add_lines(all, kTraining, bad.training);
  add_lines(all, kEvaluation, bad.evaluation);
  return all;
}

}  // namespace

Json to_json(const BadSamples& bad) {
  Json all = own_lines(bad);
  append_new(all, bad.earlier);
  return all;
}

void save(const BadSamples& bad, const RankPosition& rank, ArchiveWriter& archive) {
  Json all = own_lines(bad);
  for (Json& line : all) line["rank"] = rank.rank;  // a sample that two ranks found counts for both
  append_new(all, bad.earlier);
  archive.list(kBadSamples, std::move(all));
}

BadSamples load_bad_samples(const ArchiveReader& archive, const RankPosition& rank) {
  constexpr int64_t kNobody = -1;
  const bool same_ranks = archive.values().value("ranks", int64_t{1}) == rank.ranks;
  BadSamples bad;
  for (Json line : archive.value(kBadSamples)) {
    // Older checkpoints, whose lines have no set, do not name it; with one rank it is known.
    const int64_t unnamed = rank.ranks == 1 && !line.contains("set") ? 0 : kNobody;
    const int64_t finder = same_ranks ? line.value("rank", unnamed) : kNobody;
    line.erase("rank");
    line.emplace("set", kTraining);  // older checkpoints have no others
    if (finder == rank.rank)
      (line.at("set") == kEvaluation ? bad.evaluation : bad.training).push_back(refused_sample_from(line));
    else if (finder == kNobody && rank.is_first())
      append_new(bad.earlier, Json::array({line}));
  }
  return bad;
}

void stop_counting_evaluation(BadSamples& bad) {
  add_lines(bad.earlier, kEvaluation, bad.evaluation);
  bad.evaluation.clear();
}

}  // namespace trainopt
