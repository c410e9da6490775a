#include "manager/trace_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/clock_offset.h"
#include "base/log.h"

namespace lamina {
namespace {

// Numbers of tracks inside a node's process.
constexpr int kWorkTrack = 1;  // what the node does, one thing after another
// + batch: its steps on a compute node, its messages on their way to and from a memory node.
constexpr int kFirstBatch = 100;

bool IsOnItsWay(StepWork work) {
  return work == StepWork::kQWire || work == StepWork::kQueue || work == StepWork::kOutputWire;
}

std::string NameOf(const StepRecord& record) {
  const char* const name = StepWorkName(record.work);
  switch (record.work) {
    case StepWork::kStep: return fmt::format("{} {}", name, record.step);
    case StepWork::kSample:
    case StepWork::kBubble: return name;
    default: return fmt::format("{} {}", name, record.layer);
  }
}

}  // namespace

Result<std::unique_ptr<TraceFile>> TraceFile::Create(const std::string& path, int64_t max_bytes) {
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "we"));
  if (file == nullptr)
    return InvalidArgument("trace file " + path + " cannot be written: " + std::strerror(errno));
  return std::unique_ptr<TraceFile>(new TraceFile(path, std::move(file), max_bytes));
}

TraceFile::TraceFile(std::string path, std::unique_ptr<std::FILE, CloseFile> file,
                     int64_t max_bytes)
    : path_(std::move(path)), file_(std::move(file)), max_bytes_(max_bytes), origin_ns_(NowNs()) {
  WriteRaw("[\n");
}

TraceFile::~TraceFile() {
  if (const Status closed = Close(); !closed.ok()) LAMINA_LOG_ERROR("{}", closed.message());
}

Status TraceFile::Close() {
  if (file_ == nullptr) return OkStatus();
  WriteRaw("\n]\n");
  if (std::fclose(file_.release()) != 0 && error_ == 0) error_ = errno;
  if (error_ != 0)
    return InternalError("trace file " + path_ + " is incomplete: " + std::strerror(error_));
  return OkStatus();
}

void TraceFile::Name(NodeId node, const std::string& name) {
  const std::string quoted =
      nlohmann::json(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  Write(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})",
                    node.value, quoted));
  Write(fmt::format(
      R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})",
      node.value));
}

void TraceFile::Add(NodeId of, std::span<const StepRecord> records) {
  for (const StepRecord& record : records) {
    if (full()) return;
    const Track track = TrackOf(of, record);
    Write(fmt::format(
        R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"step":{},"batch":{},"layer":{},"rows":{}}}}})",
        NameOf(record), StepWorkName(record.work), track.node.value, track.number,
        Us(record.start_ns), static_cast<double>(record.end_ns - record.start_ns) * 1e-3,
        record.step, record.batch, record.layer, record.rows));
    AddFlow(of, record);
    ++num_events_;
  }
}

// Where a record is drawn; a track that is new gets its name.
TraceFile::Track TraceFile::TrackOf(NodeId of, const StepRecord& record) {
  const NodeId node = record.node == 0 ? of : NodeId{record.node};
  const bool per_batch = record.work == StepWork::kStep || IsOnItsWay(record.work);
  const Track track{node, per_batch ? kFirstBatch + record.batch : kWorkTrack};
  if (!named_.emplace(track, true).second) return track;
  const std::string name = !per_batch ? (node == of ? "slices" : "attention")
                           : record.work == StepWork::kStep
                               ? fmt::format("batch {}", record.batch)
                               : fmt::format("wire of batch {}", record.batch);
  Write(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
                    node.value, track.number, name));
  Write(fmt::format(
      R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
      node.value, track.number, track.number));
  return track;
}

// Arrows from the post of q, k and v to the attention, and from there to where the output is taken.
// The records of a message follow on each other.
void TraceFile::AddFlow(NodeId of, const StepRecord& record) {
  const Track compute{of, kWorkTrack}, memory{NodeId{record.node}, kWorkTrack};
  if (record.work == StepWork::kQWire) Arrow(true, "q", compute, record.start_ns);
  if (record.work == StepWork::kAttention && record.node != 0) {
    Arrow(false, "q", memory, record.start_ns);
    Arrow(true, "output", memory, record.end_ns);
  }
  if (record.work == StepWork::kOutputWire) Arrow(false, "output", compute, record.end_ns);
}

void TraceFile::Arrow(bool begins, const char* name, Track track, int64_t at_ns) {
  num_arrows_ += begins ? 1 : 0;
  Write(fmt::format(
      R"({{"ph":"{}","name":"{}","cat":"wire","id":{},"pid":{},"tid":{},"ts":{:.3f}{}}})",
      begins ? "s" : "f", name, num_arrows_, track.node.value, track.number, Us(at_ns),
      begins ? "" : R"(,"bp":"e")"));
}

void TraceFile::Write(const std::string& event) {
  WriteRaw((written_bytes_ > 2 ? ",\n" : "") + event);
}

void TraceFile::WriteRaw(const std::string& text) {
  written_bytes_ += static_cast<int64_t>(text.size());
  if (error_ == 0 && std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size())
    error_ = errno;
}

}  // namespace lamina
