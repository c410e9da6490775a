// What the readers of trace_reader.h share, one for each format.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <string>
#include <vector>

#include "plan/workload/trace_reader.h"

namespace lamina {

// A text file by lines, of whichever end; the last one needs none. Files may be devices and pipes
// that never end.
class LineReader {
 public:
  // kNotFound: the file cannot be opened.
  static Result<LineReader> Open(const std::string& path);

  // The next line that is not blank; false at the end of the file, or if status() is not ok.
  bool Next(std::string& line);

  // kInvalidArgument: a line, or the file, is longer than any trace's.
  const Status& status() const { return status_; }

  // kInvalidArgument "FILE:LINE: what", of the line that Next gave last.
  Status Fail(const std::string& what) const {
    return InvalidArgument(fmt::format("{}:{}: {}", path_, number_, what));
  }

 private:
  LineReader(std::string path, std::ifstream file);
  bool NextAny(std::string& line);  // likewise, blank or not

  std::string path_;
  std::ifstream file_;
  std::vector<char> buffer_;
  int64_t number_ = 0, num_bytes_ = 0;
  Status status_;
};

// kInvalidArgument: further than kMaxArrivalSeconds from the first request of the trace so far, or
// later than any clock.
Status CheckArrival(const LineReader& lines, double seconds, const RequestTrace& trace);

// Adds the request if it has tokens on both sides, else counts it as left out.
void AddOrLeaveOut(TraceRequest request, RequestTrace& trace);

// kInvalidArgument: the trace has as many requests as there may be.
Status CheckRoom(const LineReader& lines, const RequestTrace& trace);

// They fill in everything but source; arrivals as the file has them.
Status ReadAzure(LineReader& lines, RequestTrace& trace);
Status ReadBurstGpt(LineReader& lines, RequestTrace& trace);
Status ReadMooncake(LineReader& lines, RequestTrace& trace);
Status ReadShareGpt(const std::string& path, const TokenCounter& counter, RequestTrace& trace);
Status ReadAlpaca(const std::string& path, const TokenCounter& counter, RequestTrace& trace);

}  // namespace lamina
