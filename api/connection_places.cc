#include "api/connection_places.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/descriptors.h"
#include "base/log.h"

namespace lamina {
namespace {

constexpr size_t kLastPlaces = 32;
constexpr auto kWarningInterval = std::chrono::seconds(60);

}  // namespace

// Closes the connection that waits longest, of the origin that has most. False if none waits.
bool ConnectionPlaces::MakeRoom() {
  const auto less = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  const auto largest = std::ranges::max_element(waiting_, less);
  if (largest == waiting_.end()) return false;
  if (Clock::now() >= next_warning_) {
    LAMINA_LOG_WARN(
        "all {} places for HTTP connections are taken, {} by connections from {} that wait: they "
        "are closed for new ones",
        num_taken_, largest->second.size(), largest->first);
    next_warning_ = Clock::now() + kWarningInterval;
  }
  largest->second.front()->give_way_();
  return true;
}

ConnectionPlaces::Place::Place(ConnectionPlaces& all, std::string origin,
                               std::function<void()> give_way)
    : all_(all), origin_(std::move(origin)), give_way_(std::move(give_way)) {
  const bool full = all_.num_taken_ >= all_.num_places_ || DescriptorsAreScarce();
  const bool has_place = !full || all_.MakeRoom();
  if (!has_place && all_.last_.size() >= kLastPlaces) all_.last_.front()->give_way_();
  ++all_.num_taken_;
  if (!has_place) last_ = all_.last_.insert(all_.last_.end(), this);
}

void ConnectionPlaces::Place::BeginWaiting() {
  if (!taken_ || last_) return;
  std::list<Place*>& of_origin = all_.waiting_[origin_];
  waiting_ = of_origin.insert(of_origin.end(), this);
}

void ConnectionPlaces::Place::EndWaiting() {
  if (!waiting_) return;
  const auto of_origin = all_.waiting_.find(origin_);
  of_origin->second.erase(*waiting_);
  if (of_origin->second.empty()) all_.waiting_.erase(of_origin);
  waiting_.reset();
}

void ConnectionPlaces::Place::Leave() {
  if (!std::exchange(taken_, false)) return;
  --all_.num_taken_;
  EndWaiting();
  if (last_) all_.last_.erase(*last_);
}

}  // namespace lamina
