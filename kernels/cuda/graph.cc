#include "kernels/cuda/graph.h"

#include "kernels/cuda/runtime_status.h"

namespace lamina::cuda {

Result<std::unique_ptr<Graph>> Graph::Record(Stream& stream, const std::function<void()>& record) {
  // So that what the stream reports after the recording is the recording's failure.
  if (Status failure = stream.TakeFailure(); !failure.ok()) {
    stream.Fail(failure);
    return failure;
  }
  // Thread-local: other threads of this process may allocate and wait meanwhile.
  LAMINA_RETURN_IF_ERROR(
      AsStatus(cudaStreamBeginCapture(HandleOf(stream), cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture"));
  record();
  const Status recorded = stream.TakeFailure();
  cudaGraph_t graph = nullptr;
  const Status ended =
      AsStatus(cudaStreamEndCapture(HandleOf(stream), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  Status status = recorded.ok() ? ended : recorded;
  if (status.ok())
    status = AsStatus(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!status.ok()) return status;
  std::unique_ptr<Graph> recorded_graph(new Graph(executable));
  // Uploads the graph now, so that missing memory shows here and not at the first replay.
  LAMINA_RETURN_IF_ERROR(
      AsStatus(cudaGraphUpload(executable, HandleOf(stream)), "cudaGraphUpload"));
  return recorded_graph;
}

Graph::~Graph() { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_)); }

void Graph::Replay(Stream& stream) const {
  Keep(cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle_), HandleOf(stream)), "cudaGraphLaunch",
       stream);
}

}  // namespace lamina::cuda
