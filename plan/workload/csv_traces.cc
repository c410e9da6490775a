// Readers of the traces that are CSV: Azure's and BurstGPT's.
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <vector>

#include "plan/workload/trace_readers.h"

namespace lamina {
namespace {

constexpr size_t kShownBytes = 200;  // of a header that is not understood

// Commas within double quotes do not separate. The quotes are dropped.
std::vector<std::string> SplitCsv(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

// Where the fields that are read stand in a row, and how many fields a row has.
struct Columns {
  size_t time = 0, input = 0, output = 0;
  size_t count = 0;
};

Result<Columns> FindColumns(LineReader& lines, const std::string& time, const std::string& input,
                            const std::string& output) {
  std::string header;
  if (!lines.Next(header))
    return lines.status().ok() ? lines.Fail("the file is empty") : lines.status();
  const std::vector<std::string> names = SplitCsv(header);
  Columns columns;
  columns.count = names.size();
  for (const auto& [name, position] :
       {std::pair(time, &columns.time), {input, &columns.input}, {output, &columns.output}}) {
    size_t i = 0;
    while (i < names.size() && names[i] != name) ++i;
    if (i == names.size())
      return lines.Fail("there is no column '" + name + "' in the header '" +
                        header.substr(0, kShownBytes) + "'");
    *position = i;
  }
  return columns;
}

template <typename Number>
std::optional<Number> WholeNumber(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Seconds since 1970 of "2023-11-16 18:15:46.6805900", perhaps with a "T" and an offset such as
// "+00:00". The offset is ignored: it is the same throughout a file, and arrivals are made relative
// later.
std::optional<double> SecondsOfTimestamp(const std::string& text) {
  constexpr size_t kDateTimeLength = 19;
  if (text.size() < kDateTimeLength || text[4] != '-' || text[7] != '-' || text[13] != ':' ||
      text[16] != ':')
    return std::nullopt;
  const std::string_view view = text;
  const auto year = WholeNumber<int>(view.substr(0, 4));
  const auto month = WholeNumber<unsigned>(view.substr(5, 2)),
             day = WholeNumber<unsigned>(view.substr(8, 2));
  const auto hour = WholeNumber<int>(view.substr(11, 2)),
             minute = WholeNumber<int>(view.substr(14, 2));
  const std::string_view rest = view.substr(17);
  const auto second = WholeNumber<double>(rest.substr(0, rest.find_first_of("+-Z")));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month),
                                         std::chrono::day(*day)};
  if (!date.ok() || *hour < 0 || *hour > 23 || *minute < 0 || *minute > 59 ||
      !(*second >= 0 && *second < 61))
    return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(((days * 24 + *hour) * 60 + *minute) * 60) + *second;
}

std::optional<double> SecondsOfNumber(const std::string& text) {
  const std::optional<double> seconds = WholeNumber<double>(text);
  return seconds && std::isfinite(*seconds) && *seconds >= 0 ? seconds : std::nullopt;
}

using ToSeconds = std::optional<double> (*)(const std::string& text);

// `expected_time` says in messages what `to_seconds` reads.
Status ReadRows(LineReader& lines, const Columns& columns, ToSeconds to_seconds,
                const char* expected_time, RequestTrace& trace) {
  trace.has_arrivals = true;
  trace.counted_by = "the trace";
  for (std::string line; lines.Next(line);) {
    const std::vector<std::string> fields = SplitCsv(line);
    if (fields.size() != columns.count)
      return lines.Fail(fmt::format("{} fields; the header has {}", fields.size(), columns.count));
    TraceRequest request;
    const std::optional<double> seconds = to_seconds(fields[columns.time]);
    if (!seconds)
      return lines.Fail("'" + fields[columns.time] + "' is no time; expected " + expected_time);
    LAMINA_RETURN_IF_ERROR(CheckArrival(lines, *seconds, trace));
    request.arrival_seconds = *seconds;
    for (const auto& [field, tokens] : {std::pair(columns.input, &request.input_tokens),
                                        {columns.output, &request.output_tokens}}) {
      const std::optional<int64_t> count = WholeNumber<int64_t>(fields[field]);
      if (!count || *count < 0 || *count > kMaxRequestTokens)
        return lines.Fail("'" + fields[field] + "' is no number of tokens");
      *tokens = *count;
    }
    LAMINA_RETURN_IF_ERROR(CheckRoom(lines, trace));
    AddOrLeaveOut(std::move(request), trace);
  }
  return lines.status();
}

}  // namespace

Status ReadAzure(LineReader& lines, RequestTrace& trace) {
  LAMINA_ASSIGN_OR_RETURN(const Columns columns,
                          FindColumns(lines, "TIMESTAMP", "ContextTokens", "GeneratedTokens"));
  return ReadRows(lines, columns, SecondsOfTimestamp, "a form like 2023-11-16 18:15:46.6805900",
                  trace);
}

Status ReadBurstGpt(LineReader& lines, RequestTrace& trace) {
  LAMINA_ASSIGN_OR_RETURN(const Columns columns,
                          FindColumns(lines, "Timestamp", "Request tokens", "Response tokens"));
  return ReadRows(lines, columns, SecondsOfNumber, "seconds", trace);
}

}  // namespace lamina
