// While a trace is written: asks compute nodes for their records again and again, and puts them
// into the file on the manager's clock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/clock_offset.h"
#include "base/mutex.h"
#include "manager/trace_file.h"
#include "wire/session_messages.h"

namespace lamina {

class TraceCollector {
 public:
  struct Node {
    NodeId id;
    std::string name;  // "memory node m0"
    bool compute = false;
  };
  // Sends a query to a compute node; an error: it cannot be asked any more.
  using Ask = std::function<Status(NodeId node, const TraceQuery& query)>;

  // `file` is borrowed; nobody else may use it until Finish.
  TraceCollector(TraceFile& file, uint64_t epoch, const std::vector<Node>& nodes, Ask ask);
  ~TraceCollector();

  // Begins to ask; answers may come from here on. REQUIRES: called once.
  void Start();

  // An answer. Thread: any.
  void Take(NodeId from, TraceAnswer answer);

  // Fetches what is left, and ends; what a node does not tell before `deadline` is lost.
  void Finish(Deadline deadline);

 private:
  struct Source {
    ClockOffset clock;
    bool asked = false;     // its answer is under way
    bool gone = false;      // it cannot be asked any more
    bool complete = false;  // it has told all that was there when Finish was called
    TimePoint ask_at{};     // the next request, or when one that is not answered is taken for lost
  };
  struct Answer {
    NodeId from;
    TraceAnswer trace;
    int64_t taken_ns = 0;
  };

  void Run();
  void AskAll();
  // For a while. False: Finish was called, with this deadline.
  bool WaitForAnswers(std::deque<Answer>& answers, Deadline& deadline);
  void Write(const Answer& answer);
  void NamePeers(const TraceAnswer& trace);

  TraceFile& file_;
  const uint64_t epoch_;
  const std::vector<Node> nodes_;
  const Ask ask_;

  // thread_ only
  std::map<NodeId, Source> sources_;
  std::set<NodeId> estimated_;          // their names say so
  int64_t finish_from_ns_ = INT64_MAX;  // answers to later requests tell all
  uint64_t num_lost_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Answer> answers_ GUARDED_BY(mutex_);
  bool finishing_ GUARDED_BY(mutex_) = false;
  Deadline deadline_ GUARDED_BY(mutex_){TimePoint::max()};
  std::thread thread_;
};

}  // namespace lamina
