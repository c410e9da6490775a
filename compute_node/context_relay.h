// Hands steps from compute node to compute node, where nodes run different slices of a batch: the
// node that has run a slice asks the memory nodes for the attention behind it and sends the context
// (step_context.h) to the node that runs the next one.
#pragma once

#include "compute_node/context_exchange.h"
#include "compute_node/step.h"
#include "compute_node/step_context.h"

namespace lamina {

// Thread: one owner.
class ContextRelay {
 public:
  // Borrows both. Values of contexts travel in `wire_dtype`.
  ContextRelay(ContextExchange& others, StepSession& session, DType wire_dtype)
      : others_(others), session_(session), format_{session.model.sliced, wire_dtype} {}

  // Takes the context of the step's next slice if it is here, and expects the attention before the
  // slice. Returns whether it did. If the context does not come in time or is damaged, the node
  // that was to send it is lost. REQUIRES: step.course().lacks_context().
  bool Take(Step& step);

  // Asks for the attention behind the slice that has run, for the node that runs the next one.
  // REQUIRES: that is another one.
  void Ask(Step& step);
  // Hands the context to that node, and advances the step. If no further slice runs here, the step
  // leaves this node. If the other node cannot be reached it is lost. REQUIRES: Ask was called, and
  // StepTransfer::Stored has returned true since then.
  void PassOn(Step& step);

  // The node that runs the slice behind the step's next one; 0 if that is this node.
  NodeId TakerOf(const Step& step) const;

 private:
  Status Read(Step& step, int from);
  PassedMessage ContextOf(const Step& step, int slice) const {
    return {MessageKind::kContext, step.batch(), step.id(), slice, step.rows().size()};
  }

  ContextExchange& others_;
  StepSession& session_;
  const ContextFormat format_;
};

}  // namespace lamina
