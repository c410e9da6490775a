// What the readers of the formats share; trace_reader.h describes the formats.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <string>
#include <vector>

#include "plan/workload/trace_reader.h"

namespace lamina {

// Reads a text file line by line. Lines end with or without '\r', the last one also without '\n'. A
// file may be a device or a pipe that never ends, so lines and files have a largest size. Thread:
// owner.
class LineReader {
 public:
  // kNotFound if the file cannot be opened.
  static Result<LineReader> Open(const std::string& path);

  // The next line that is not blank, without its end. false at the end of the file, or if status()
  // is not ok.
  bool Next(std::string& line);

  // kInvalidArgument if a line, or the file, is longer than that of any trace.
  const Status& status() const { return status_; }

  // kInvalidArgument "FILE:LINE: what", for the line that Next gave last.
  Status Fail(const std::string& what) const {
    return InvalidArgument(fmt::format("{}:{}: {}", path_, number_, what));
  }

 private:
  LineReader(std::string path, std::ifstream file);
  bool NextAny(std::string& line);  // blank or not

  std::string path_;
  std::ifstream file_;
  std::vector<char> buffer_;
  int64_t number_ = 0, num_bytes_ = 0;
  Status status_;
};

// kInvalidArgument if `seconds` is more than kMaxArrivalSeconds away from the first request of the
// trace so far, or later than any clock.
Status CheckArrival(const LineReader& lines, double seconds, const RequestTrace& trace);

// Adds the request if it has tokens of prompt and answer, else counts it as left out.
void AddOrLeaveOut(TraceRequest request, RequestTrace& trace);

// kInvalidArgument if the trace has kMaxRequests requests already.
Status CheckRoom(const LineReader& lines, const RequestTrace& trace);

// Each fills in all of the trace but its source. Arrivals are as in the file: in its order, and not
// from 0.
Status ReadAzure(LineReader& lines, RequestTrace& trace);
Status ReadBurstGpt(LineReader& lines, RequestTrace& trace);
Status ReadMooncake(LineReader& lines, RequestTrace& trace);
Status ReadShareGpt(const std::string& path, const TokenCounter& counter, RequestTrace& trace);
Status ReadAlpaca(const std::string& path, const TokenCounter& counter, RequestTrace& trace);

}  // namespace lamina
