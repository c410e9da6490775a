// What the readers of trace_reader.h share, one for each format.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <string>

#include "bench/workload/trace_reader.h"

namespace lamina {

// A text file by lines, of whichever end; the last one needs none.
class LineReader {
 public:
  // kNotFound: the file cannot be opened.
  static Result<LineReader> Open(const std::string& path);

  // The next line that is not blank; false at the end of the file.
  bool Next(std::string& line);

  // kInvalidArgument "FILE:LINE: what", of the line that Next gave last.
  Status Fail(const std::string& what) const { return InvalidArgument(fmt::format("{}:{}: {}", path_, number_, what)); }

 private:
  LineReader(std::string path, std::ifstream file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  std::ifstream file_;
  int64_t number_ = 0;
};

// More tokens in one request are a mistake of the file, and sums of so many cannot overflow.
inline constexpr int64_t kMaxTraceTokens = 1'000'000'000;

// kInvalidArgument: further than kMaxArrivalSeconds from the first request of the trace so far, or later than any clock.
Status CheckArrival(const LineReader& lines, double seconds, const RequestTrace& trace);

// Adds the request if it has tokens on both sides, else counts it as left out.
void AddOrLeaveOut(TraceRequest request, RequestTrace& trace);

// They fill in everything but source; arrivals as the file has them.
Status ReadAzure(LineReader& lines, RequestTrace& trace);
Status ReadBurstGpt(LineReader& lines, RequestTrace& trace);
Status ReadMooncake(LineReader& lines, RequestTrace& trace);
Status ReadShareGpt(const std::string& path, const TokenCounter& counter, RequestTrace& trace);
Status ReadAlpaca(const std::string& path, const TokenCounter& counter, RequestTrace& trace);

}  // namespace lamina
