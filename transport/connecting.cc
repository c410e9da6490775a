#include "transport/connecting.h"

namespace lamina {
namespace {

class ConnectingWithOutcome final : public Connecting {
 public:
  ConnectingWithOutcome(std::unique_ptr<Connecting> inner, TakeOutcome take)
      : inner_(std::move(inner)), take_(std::move(take)) {}

  Result<std::unique_ptr<Endpoint>> Poll() override {
    Result<std::unique_ptr<Endpoint>> outcome = inner_->Poll();
    if (outcome.status().code() == StatusCode::kTryAgain) return outcome;
    return take_(std::move(outcome));
  }
  TimePoint wake_at() const override { return inner_->wake_at(); }

 private:
  const std::unique_ptr<Connecting> inner_;
  const TakeOutcome take_;
};

}  // namespace

std::unique_ptr<Connecting> WithOutcome(std::unique_ptr<Connecting> inner, TakeOutcome take) {
  return std::make_unique<ConnectingWithOutcome>(std::move(inner), std::move(take));
}

}  // namespace lamina
