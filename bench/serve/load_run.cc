#include "bench/serve/load_run.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "bench/serve/answer_meter.h"
#include "bench/serve/http_connections.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr auto kProgressInterval = milliseconds(200);

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// One run. Everything happens on the thread that calls Run.
class LoadRun {
 public:
  LoadRun(const std::vector<LoadRequest>& requests, const LoadOptions& options)
      : requests_(requests),
        options_(options),
        due_(io_),
        slot_free_(io_),
        progress_(io_),
        signals_(io_) {
    result_.records.resize(requests.size());
  }

  Result<LoadResult> Run(const HttpUrl& url) {
    LAMINA_ASSIGN_OR_RETURN(connections_,
                            HttpConnections::Create(io_, url, options_.api_key, options_.ca_file));
    if (options_.ends_at_signals) AwaitSignal();
    const double cpu_before = CpuSeconds();
    start_ = Clock::now();
    asio::co_spawn(io_, SendAll(), asio::detached);
    if (options_.on_progress || options_.ends_when)
      asio::co_spawn(io_, ShowProgress(), asio::detached);
    io_.run();
    result_.duration_seconds = std::chrono::duration<double>(end_ - start_).count();
    result_.cpu_share = (CpuSeconds() - cpu_before) / std::max(1e-9, SecondsSince(start_));
    result_.num_connections = connections_->num_opened();
    if (!lateness_.empty()) {
      result_.worst_lateness_seconds = *std::max_element(lateness_.begin(), lateness_.end());
      result_.p99_lateness_seconds = Percentile(lateness_, 0.99);
    }
    return std::move(result_);
  }

 private:
  void AwaitSignal() {
    signals_.add(SIGINT);
    signals_.add(SIGTERM);
    signals_.async_wait([this](const error_code& error, int) {
      if (!error) EndEarly();
    });
  }

  // Coroutines that are suspended stay so: nothing of them runs again.
  void EndEarly() {
    End();
    result_.ended_early = true;
    result_.num_unsent = requests_.size() - num_sent_;
    result_.records.resize(num_sent_);
    io_.stop();
  }

  asio::awaitable<void> SendAll() {
    error_code ignored;
    for (size_t i = 0; i < requests_.size(); ++i) {
      const TimePoint due =
          start_ + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(requests_[i].arrival_seconds));
      if (due > Clock::now()) {
        due_.expires_at(due);
        co_await due_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      }
      // A request that has to wait for a slot is not sent late by the generator.
      const bool waits = !HasSlot();
      while (!HasSlot()) {
        slot_free_.expires_at(TimePoint::max());
        co_await slot_free_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      }
      if (!waits) lateness_.push_back(std::max(0.0, SecondsSince(due)));
      ++in_flight_;
      asio::co_spawn(io_, Ask(i), asio::detached);
    }
    if (requests_.empty()) End();
  }

  asio::awaitable<void> Ask(size_t i) {
    const LoadRequest& request = requests_[i];
    RequestRecord& record = result_.records[i];
    record.error_kind = kInterrupted;  // until it ends
    record.error = "there was no answer yet when the run was ended";
    num_sent_ = i + 1;
    const TimePoint sent = Clock::now();
    record.arrival = request.arrival_seconds;
    record.sent = std::chrono::duration<double>(sent - start_).count();
    record.input_tokens = request.input_tokens;
    record.wanted_tokens = request.output_tokens;
    AnswerMeter meter(sent);
    const HttpConnections::OnEvent on_event = [&meter](std::string_view data, TimePoint at) {
      meter.Take(data, at);
    };
    StreamEnd end = co_await connections_->PostForEvents(options_.path, request.body,
                                                         sent + options_.timeout, on_event);
    if (end.ok() && !meter.error().empty()) end = {"error in the stream", meter.error()};
    if (end.ok() && !meter.has_tokens())
      end = {"no tokens", "the answer has no tokens: is this endpoint an OpenAI-compatible one?"};
    if (end.ok() && !meter.done()) end = {"incomplete stream", "the stream ended without [DONE]"};
    Finish(record, meter, end);
  }

  void Finish(RequestRecord& record, const AnswerMeter& meter, const StreamEnd& end) {
    --in_flight_;
    record.error_kind = end.error_kind;
    record.error = end.error;
    if (end.ok()) {
      ++num_completed_;
      record.ttft = meter.ttft_seconds();
      record.e2el = meter.e2el_seconds();
      record.itl = meter.itl_seconds();
      if (meter.prompt_tokens() > 0) record.input_tokens = meter.prompt_tokens();
      record.output_tokens = meter.output_tokens();
      record.counted_by_server = meter.counted_by_server();
      num_output_tokens_ += record.output_tokens;
    } else {
      ++num_failed_;
    }
    slot_free_.cancel();
    if (num_completed_ + num_failed_ == requests_.size()) End();
  }

  void End() {
    end_ = Clock::now();
    progress_.cancel();
    signals_.cancel();
    signals_.clear();  // their former dispositions hold again
    ended_ = true;
  }

  asio::awaitable<void> ShowProgress() {
    error_code ignored;
    while (!ended_) {
      progress_.expires_after(kProgressInterval);
      co_await progress_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      if (options_.on_progress)
        options_.on_progress({SecondsSince(start_), requests_.size(), num_completed_, num_failed_,
                              in_flight_, num_output_tokens_});
      if (!ended_ && options_.ends_when && options_.ends_when()) co_return EndEarly();
    }
  }

  bool HasSlot() const {
    return options_.max_concurrency == 0 ||
           in_flight_ < static_cast<size_t>(options_.max_concurrency);
  }

  const std::vector<LoadRequest>& requests_;
  const LoadOptions& options_;
  asio::io_context io_{1};
  asio::steady_timer due_, slot_free_, progress_;
  asio::signal_set signals_;
  std::unique_ptr<HttpConnections> connections_;
  TimePoint start_, end_;
  size_t num_sent_ = 0, in_flight_ = 0, num_completed_ = 0, num_failed_ = 0;
  int64_t num_output_tokens_ = 0;
  bool ended_ = false;
  std::vector<double> lateness_;
  LoadResult result_;
};

}  // namespace

void AllowManyOpenFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

Result<LoadResult> RunLoad(const HttpUrl& url, const std::vector<LoadRequest>& requests,
                           const LoadOptions& options) {
  return LoadRun(requests, options).Run(url);
}

}  // namespace lamina
