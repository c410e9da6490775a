// A file of Chrome trace events, for ui.perfetto.dev and chrome://tracing: a process for each node,
// on it a track for what the node does and one for each batch. What the events mean:
// wire/step_times.h and docs/tracing.md.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/ids.h"
#include "base/status.h"
#include "wire/step_times.h"

namespace lamina {

// Thread: one at a time.
class TraceFile {
 public:
  // Beyond this a viewer gives up; what comes later is left out.
  static constexpr int64_t kMaxBytes = int64_t{1} << 30;

  // An existing file is replaced. kInvalidArgument: it cannot be written, with the cause.
  static Result<std::unique_ptr<TraceFile>> Create(const std::string& path,
                                                   int64_t max_bytes = kMaxBytes);
  ~TraceFile();  // closes it if nobody did, and logs a failure

  // Names the process of a node. A later name replaces an earlier one.
  void Name(NodeId node, const std::string& name);

  // Records of compute node `of`, on the manager's clock, in the order in which they were made.
  void Add(NodeId of, std::span<const StepRecord> records);

  // Ends the file. Fails if any byte of it could not be written.
  Status Close();

  bool full() const { return written_bytes_ >= max_bytes_; }  // events are being left out
  int64_t num_events() const { return num_events_; }

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct Track {
    NodeId node;
    int number = 0;
    auto operator<=>(const Track&) const = default;
  };

  TraceFile(std::string path, std::unique_ptr<std::FILE, CloseFile> file, int64_t max_bytes);

  Track TrackOf(NodeId of, const StepRecord& record);
  void AddFlow(NodeId of, const StepRecord& record);
  void Arrow(bool begins, const char* name, Track track, int64_t at_ns);
  double Us(int64_t at_ns) const { return static_cast<double>(at_ns - origin_ns_) * 1e-3; }
  void Write(const std::string& event);
  void WriteRaw(const std::string& text);

  const std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  const int64_t max_bytes_;
  const int64_t origin_ns_;  // time 0 of the file: when it was created
  std::map<Track, bool> named_;
  int64_t written_bytes_ = 0, num_events_ = 0;
  uint64_t num_arrows_ = 0;
  int error_ = 0;  // errno of the first write that failed
};

}  // namespace lamina
