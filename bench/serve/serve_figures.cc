#include "bench/serve/serve_figures.h"

#include <charconv>

namespace lamina {
namespace {

Status BadTerm(const std::string& term) {
  return InvalidArgument("--goodput '" + term +
                         "' is not understood; expected ttft:MS, tpot:MS or e2el:MS");
}

}  // namespace

bool ServiceLevel::IsKept(const RequestRecord& record) const {
  const auto within = [](double seconds, const std::optional<double>& limit_ms) {
    return !limit_ms || seconds * 1e3 <= *limit_ms;
  };
  return record.ok() && within(record.ttft, ttft_ms) && within(record.tpot(), tpot_ms) &&
         within(record.e2el, e2el_ms);
}

Result<ServiceLevel> ServiceLevel::Parse(const std::vector<std::string>& terms) {
  ServiceLevel level;
  for (const std::string& term : terms) {
    const size_t colon = term.find(':');
    if (colon == std::string::npos) return BadTerm(term);
    const std::string name = term.substr(0, colon), text = term.substr(colon + 1);
    std::optional<double>* limit = name == "ttft"   ? &level.ttft_ms
                                   : name == "tpot" ? &level.tpot_ms
                                   : name == "e2el" ? &level.e2el_ms
                                                    : nullptr;
    double ms = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
    if (limit == nullptr || error != std::errc() || end != text.data() + text.size() || !(ms > 0))
      return BadTerm(term);
    *limit = ms;
  }
  return level;
}

ServeFigures Evaluate(const LoadResult& result, const ServiceLevel& level,
                      const std::vector<double>& percents) {
  ServeFigures figures;
  figures.duration = result.duration_seconds;
  std::vector<double> ttft, tpot, itl, e2el;
  int64_t num_good = 0;
  for (const RequestRecord& record : result.records) {
    if (record.interrupted()) {
      ++figures.interrupted;
      continue;
    }
    if (!record.ok()) {
      ++figures.failed;
      ErrorKind& kind = figures.errors[record.error_kind];
      if (kind.count++ == 0) kind.example = record.error;
      continue;
    }
    ++figures.completed;
    figures.shorter_than_wanted += record.output_tokens < record.wanted_tokens;
    figures.counted_by_events += !record.counted_by_server;
    figures.total_input_tokens += record.input_tokens;
    figures.total_output_tokens += record.output_tokens;
    num_good += level.IsKept(record);
    ttft.push_back(record.ttft);
    e2el.push_back(record.e2el);
    itl.insert(itl.end(), record.itl.begin(), record.itl.end());
    if (record.output_tokens > 1) tpot.push_back(record.tpot());
  }
  const double seconds = std::max(1e-9, figures.duration);
  figures.request_throughput = static_cast<double>(figures.completed) / seconds;
  figures.output_throughput = static_cast<double>(figures.total_output_tokens) / seconds;
  figures.total_token_throughput =
      static_cast<double>(figures.total_input_tokens + figures.total_output_tokens) / seconds;
  if (level.given()) figures.request_goodput = static_cast<double>(num_good) / seconds;
  figures.ttft = FiguresOf(std::move(ttft), percents);
  figures.tpot = FiguresOf(std::move(tpot), percents);
  figures.itl = FiguresOf(std::move(itl), percents);
  figures.e2el = FiguresOf(std::move(e2el), percents);
  return figures;
}

}  // namespace lamina
