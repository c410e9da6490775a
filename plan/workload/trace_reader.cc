#include "plan/workload/trace_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include "plan/workload/trace_readers.h"

namespace lamina {
namespace {

constexpr std::array<std::pair<const char*, TraceFormat>, 5> kFormats = {
    {{"azure", TraceFormat::kAzure},
     {"burstgpt", TraceFormat::kBurstGpt},
     {"mooncake", TraceFormat::kMooncake},
     {"sharegpt", TraceFormat::kShareGpt},
     {"alpaca", TraceFormat::kAlpaca}}};
// More than any line, or any file, of these traces has.
constexpr std::streamsize kMaxLineBytes = 1 << 20;
constexpr int64_t kMaxTraceBytes = int64_t{4} << 30;
constexpr char kFormatNames[] = "azure, burstgpt, mooncake, sharegpt, alpaca";

Status ReadAs(const std::string& path, TraceFormat format, const TokenCounter& counter,
              RequestTrace& trace) {
  if (format == TraceFormat::kShareGpt) return ReadShareGpt(path, counter, trace);
  if (format == TraceFormat::kAlpaca) return ReadAlpaca(path, counter, trace);
  LAMINA_ASSIGN_OR_RETURN(LineReader lines, LineReader::Open(path));
  if (format == TraceFormat::kAzure) return ReadAzure(lines, trace);
  return format == TraceFormat::kBurstGpt ? ReadBurstGpt(lines, trace) : ReadMooncake(lines, trace);
}

}  // namespace

Result<LineReader> LineReader::Open(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(path + ": " + std::strerror(errno));
  return LineReader(path, std::move(file));
}

LineReader::LineReader(std::string path, std::ifstream file)
    : path_(std::move(path)),
      file_(std::move(file)),
      buffer_(static_cast<size_t>(kMaxLineBytes) + 2) {}

bool LineReader::NextAny(std::string& line) {
  if (!status_.ok() || !file_) return false;
  file_.getline(buffer_.data(), std::ssize(buffer_));
  const std::streamsize count = file_.gcount();
  if (count == 0) return false;
  ++number_;
  num_bytes_ += count;
  const bool ended = !file_.eof() && !file_.fail();  // by '\n', which counts
  if (num_bytes_ > kMaxTraceBytes) {
    status_ = Fail(fmt::format("the file has more than {} bytes: it is too large for a trace",
                               kMaxTraceBytes));
  } else if (count > kMaxLineBytes) {
    status_ = Fail(fmt::format("the line has more than {} bytes: this is no trace", kMaxLineBytes));
  }
  line.assign(buffer_.data(), static_cast<size_t>(count - (ended ? 1 : 0)));
  return status_.ok();
}

bool LineReader::Next(std::string& line) {
  while (NextAny(line)) {
    // A byte order mark.
    if (number_ == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) return true;
  }
  return false;
}

Status CheckArrival(const LineReader& lines, double seconds, const RequestTrace& trace) {
  constexpr double kLatestSeconds = 1e12;  // since 1970, or since when the file's time began
  const double first = trace.requests.empty() ? seconds : trace.requests.front().arrival_seconds;
  if (seconds <= kLatestSeconds && std::abs(seconds - first) <= kMaxArrivalSeconds)
    return OkStatus();
  return lines.Fail(fmt::format(
      "a request at {:g} s is more than a year away from the others; is the time in another unit?",
      seconds));
}

Status CheckRoom(const LineReader& lines, const RequestTrace& trace) {
  if (std::ssize(trace.requests) < kMaxRequests) return OkStatus();
  return lines.Fail(
      fmt::format("there are more than {} requests, which do not fit into memory", kMaxRequests));
}

void AddOrLeaveOut(TraceRequest request, RequestTrace& trace) {
  if (request.input_tokens < 1 || request.output_tokens < 1) {
    ++trace.num_left_out;
  } else {
    trace.requests.push_back(std::move(request));
  }
}

Result<TraceFormat> ParseTraceFormat(const std::string& name) {
  for (const auto& [known, format] : kFormats) {
    if (name == known) return format;
  }
  return InvalidArgument("'" + name + "' is no format of traces; expected one of " + kFormatNames);
}

Result<TraceFormat> DetectTraceFormat(const std::string& path) {
  std::error_code ignored;
  // Reading the beginning of a pipe would take it away from the reader.
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    return InvalidArgument(path +
                           " is no regular file, whose beginning would show which trace it is");
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(path + ": " + std::strerror(errno));
  std::string begin(4096, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(file.gcount()));
  const std::string first_line = begin.substr(0, begin.find('\n'));
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  if (has(first_line, "ContextTokens") && has(first_line, "GeneratedTokens"))
    return TraceFormat::kAzure;
  if (has(first_line, "Request tokens") && has(first_line, "Response tokens"))
    return TraceFormat::kBurstGpt;
  if (has(first_line, "\"input_length\"") && has(first_line, "\"output_length\""))
    return TraceFormat::kMooncake;
  if (has(begin, "\"conversations\"")) return TraceFormat::kShareGpt;
  if (has(begin, "\"instruction\"")) return TraceFormat::kAlpaca;
  return InvalidArgument(path + ": the beginning is that of no known trace, which are " +
                         kFormatNames);
}

Result<RequestTrace> ReadTrace(const std::string& path, TraceFormat format,
                               const TokenCounter& counter) {
  RequestTrace trace;
  trace.source = path;
  LAMINA_RETURN_IF_ERROR(ReadAs(path, format, counter, trace));
  if (trace.requests.empty()) {
    return InvalidArgument(
        path + ": no request in it" +
        (trace.num_left_out > 0 ? fmt::format("; {} were left out", trace.num_left_out) : ""));
  }
  const auto earlier = [](const TraceRequest& a, const TraceRequest& b) {
    return a.arrival_seconds < b.arrival_seconds;
  };
  std::stable_sort(trace.requests.begin(), trace.requests.end(), earlier);
  const double first = trace.requests.front().arrival_seconds;
  for (TraceRequest& request : trace.requests) request.arrival_seconds -= first;
  if (trace.requests.back().arrival_seconds > kMaxArrivalSeconds)
    return InvalidArgument(path + ": its requests come over more than a year");
  return trace;
}

}  // namespace lamina
