#include "compute_node/step_course.h"

#include <utility>

namespace lamina {

void StepCourse::Begin(const StepPlace& place) {
  place_ = place;
  next_slice_ = place.NextHere(0, num_slices_);
  lacks_context_ = next_slice_ > 0;
  sent_queries_ = false;
  waits_since_ = Clock::now();
  when_stored_ = WhenStored::kNothing;
}

void StepCourse::Advance() {
  sent_queries_ = false;
  const int next = place_.NextHere(next_slice_ + 1, num_slices_);
  lacks_context_ = next > next_slice_ + 1;
  next_slice_ = next;
}

WhenStored StepCourse::TakeWhenStored() {
  return std::exchange(when_stored_, WhenStored::kNothing);
}

}  // namespace lamina
