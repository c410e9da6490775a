#include "transport/ucx/ucx_worker.h"

#include <sys/epoll.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "transport/rdma_host.h"

namespace lamina {
namespace {

// How often Arm lets UCX make progress while UCX says that it is busy.
constexpr int kArmAttempts = 100;

// The text that `print` writes to a FILE.
template <typename Print>
std::string Printed(Print print) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return "";
  print(stream);
  std::fclose(stream);
  std::string result(text, bytes);
  std::free(text);
  return result;
}

// What a worker needs of trusted devices, checked before UCX is called: with too little locked
// memory it would never return (kUcxLockedBytes).
Status CheckCanLockQueues() {
  if (UcxTrustedDevices().empty()) return OkStatus();
  const Status status = CheckCanLock(kUcxLockedBytes);
  if (status.ok()) return status;
  return OutOfSpace(
      "ucx: too little locked memory for UCX to use the RDMA device here: " + status.message() +
      "; or keep UCX from the device: leave " + std::string(kUcxTrustedDevices) + " unset");
}

}  // namespace

Result<std::unique_ptr<UcxWorker>> UcxWorker::Create(UcxContext& context, UcxReceiver& receiver) {
  LAMINA_RETURN_IF_ERROR(CheckCanLockQueues());
  std::unique_ptr<UcxWorker> worker(new UcxWorker(receiver));
  LAMINA_RETURN_IF_ERROR(worker->Open(context));
  return worker;
}

Status UcxWorker::Open(UcxContext& context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // The fabric has one owner, but the owner may hand all of it to another thread.
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucp_worker_create(context.context(), &params, &worker_);
  if (status != UCS_OK) return InternalError(UcxText("ucx: ucp_worker_create", status));

  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kUcxMessageId;
  handler.cb = OnMessage;
  handler.arg = this;
  status = ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK)
    return InternalError(UcxText("ucx: ucp_worker_set_am_recv_handler", status));

  int event_fd = -1;
  status = ucp_worker_get_efd(worker_, &event_fd);
  if (status != UCS_OK) return InternalError(UcxText("ucx: ucp_worker_get_efd", status));
  wakeup_.emplace(context.poll_set, event_fd, EPOLLIN);

  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  status = ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return InternalError(UcxText("ucx: ucp_worker_get_address", status));
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return OkStatus();
}

UcxWorker::~UcxWorker() {
  wakeup_.reset();  // UCX closes the descriptor
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
}

Status UcxWorker::Connect(const std::string& address, bool is_local) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  // UCX does not use shared memory for endpoints that shall notice failures. On one machine the
  // rendezvous socket notices them.
  params.err_mode = is_local ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {OnError, this};
  const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint_);
  if (status == UCS_OK) return OkStatus();
  endpoint_ = nullptr;
  return PeerLost(UcxText("ucp_ep_create", status) + "; both ends need a transport in common");
}

std::string UcxWorker::Lanes() const {
  // Keeps the lines such as "#    lane[0]:  4:sysv/memory.0 md[3]  -> md[3]/sysv/sysdev[255] am
  // am_bw#0 rma_bw#0".
  const std::string all = Printed([&](FILE* stream) { ucp_ep_print_info(endpoint_, stream); });
  std::string lanes;
  for (size_t at = all.find("lane["); at != std::string::npos; at = all.find("lane[", at)) {
    const size_t end = std::min(all.find('\n', at), all.size());
    lanes += (lanes.empty() ? "" : "; ") + all.substr(at, end - at);
    at = end;
  }
  return lanes;
}

bool UcxWorker::Arm() {
  // UCX arms only when it has nothing left to do, and says busy otherwise.
  for (int i = 0; i < kArmAttempts; ++i) {
    const ucs_status_t status = ucp_worker_arm(worker_);
    if (status == UCS_OK) return true;
    if (status != UCS_ERR_BUSY) LAMINA_LOG_ERROR("ucx: {}", UcxText("ucp_worker_arm", status));
    Progress();
  }
  return false;
}

ucs_status_t UcxWorker::OnMessage(void* worker, const void* header, size_t header_bytes,
                                  void* /*data*/, size_t data_bytes,
                                  const ucp_am_recv_param_t* param) {
  UcxNotice notice;
  if (header_bytes != sizeof(notice) || data_bytes != 0 ||
      (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
    return UCS_OK;
  std::memcpy(&notice, header, sizeof(notice));
  static_cast<UcxWorker*>(worker)->receiver_.OnNotice(notice);
  return UCS_OK;
}

void UcxWorker::OnError(void* worker, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  static_cast<UcxWorker*>(worker)->receiver_.OnError(status);
}

}  // namespace lamina
