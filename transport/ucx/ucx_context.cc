#include "transport/ucx/ucx_context.h"

#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/log.h"
#include "transport/crypto.h"
#include "transport/rdma_host.h"
#include "transport/ucx/ucx_endpoint.h"
#include "transport/ucx/ucx_log.h"

namespace lamina {
namespace {

// How often Arm lets UCX make progress while UCX says that it is busy.
constexpr int kArmAttempts = 100;

// So many attempts in a row may be given up by the connecting end after the accepting end has
// answered them. Bounds what a peer that claims more can make this end allocate.
constexpr uint64_t kMaxMissed = 1024;

// Receives the active messages of all peers. The peers are not trusted: anything but a notice for
// an end that exists here is dropped.
ucs_status_t OnMessage(void* context, const void* header, size_t header_bytes, void* /*data*/,
                       size_t data_bytes, const ucp_am_recv_param_t* param) {
  UcxNotice notice;
  if (header_bytes != sizeof(notice) || data_bytes != 0 ||
      (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
    return UCS_OK;
  std::memcpy(&notice, header, sizeof(notice));
  const auto& endpoints = static_cast<UcxContext*>(context)->endpoints;
  const auto found = endpoints.find(notice.id);
  if (found != endpoints.end()) found->second->OnNotice(notice);
  return UCS_OK;
}

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

// Text that is the same for two processes only if they can map each other's memory and wake each
// other: the same boot of the same machine, the same user and the same namespaces. "" if that
// cannot be found out.
std::string HostIdentity() {
  std::string identity;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> identity;
  if (identity.empty()) return "";
  identity += "/" + std::to_string(geteuid());
  for (const char* space : {"ipc", "pid", "net"}) {
    struct stat info {};
    if (stat(("/proc/self/ns/" + std::string(space)).c_str(), &info) != 0) return "";
    identity += "/" + std::to_string(info.st_ino);
  }
  return identity;
}

// UCX trusts whoever can send to it. Over TCP and UD, and over what RC is connected with, that is
// everybody on the network, and some of UCX's messages name the memory that they are written to,
// whatever features are asked for. Without trusted devices that leaves the memory that processes of
// one user share, and of that only POSIX memory: UCX opens System V memory to the user's group.
constexpr std::string_view kLocalTransports = "posix,self";
constexpr std::string_view kTrustedTransports = "posix,self,rc,dc";

// How UCX allocates windows and buffers, in order of preference. Not "huge", by which UCX means
// System V memory. With RDMA a window that does not fit into shared memory may lie elsewhere, as
// other machines can still reach it.
constexpr const char* kLocalAllocations = "md:posix";
constexpr const char* kTrustedAllocations = "md:posix,thp,md:*,mmap,heap";

// Sets what UCX may use, over what the environment says: a site may have set UCX_TLS and
// UCX_NET_DEVICES there for other programs.
Status RestrictTransports(ucp_config_t* config) {
  const std::string devices = UcxTrustedDevices();
  const std::string transports(devices.empty() ? kLocalTransports : kTrustedTransports);
  // "all" allows no device as long as kLocalTransports has no transport that uses one.
  const std::string networks = devices.empty() ? "all" : devices;
  const std::pair<const char*, const char*> settings[] = {
      {"TLS", transports.c_str()},
      {"NET_DEVICES", networks.c_str()},
      {"ALLOC_PRIO", devices.empty() ? kLocalAllocations : kTrustedAllocations}};
  for (const auto& [name, value] : settings) {
    const ucs_status_t status = ucp_config_modify(config, name, value);
    if (status != UCS_OK)
      return InternalError(UcxText("ucx: setting " + std::string(name) + " to " + value, status));
    const std::string variable = "UCX_" + std::string(name);
    if (std::getenv(variable.c_str()) != nullptr)
      LAMINA_LOG_WARN("ucx: {} is not looked at: what UCX may use is chosen here", variable);
  }
  return OkStatus();
}

// Checks what UCX needs of trusted devices before UCX is called: with too little locked memory it
// would never return (kUcxLockedBytes).
Status CheckDevices() {
  if (UcxTrustedDevices().empty()) return OkStatus();
  if (!HasRdmaDevice())
    return NotFound("ucx: " + std::string(kUcxTrustedDevices) +
                    " is set, but this machine has no RDMA device");
  const Status status = CheckCanLock(kUcxLockedBytes);
  if (status.ok()) return status;
  return OutOfSpace(
      "ucx: too little locked memory for UCX to use the RDMA device here: " + status.message() +
      "; or keep UCX from the device: leave " + std::string(kUcxTrustedDevices) + " unset");
}

size_t RoundUpToPages(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

std::string UcxText(std::string_view call, ucs_status_t status) {
  return std::string(call) + ": " + ucs_status_string(status);
}

Result<std::unique_ptr<UcxContext>> UcxContext::Create() {
  std::unique_ptr<UcxContext> context(new UcxContext);
  LAMINA_RETURN_IF_ERROR(context->Open());
  return context;
}

Status UcxContext::Open() {
  TakeUcxMessages();
  LAMINA_RETURN_IF_ERROR(CheckDevices());
  LAMINA_RETURN_IF_ERROR(OpenContext());
  return OpenWorker();
}

Status UcxContext::OpenContext() {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK)
    return InternalError(UcxText("ucx: ucp_config_read", status) +
                         "; look at the UCX_ variables of the environment");
  if (const Status restricted = RestrictTransports(config); !restricted.ok()) {
    ucp_config_release(config);
    return restricted;
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "lamina";
  status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK)
    return InternalError(UcxText("ucx: ucp_init", status) +
                         "; look at the UCX_ variables of the environment");
  const std::string host = HostIdentity();
  host.copy(host_.data(), host_.size());
  return OkStatus();
}

Status UcxContext::OpenWorker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // The fabric has one owner, but the owner may hand all of it to another thread.
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucp_worker_create(context_, &params, &worker_);
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
  poll_set.Add(event_fd, EPOLLIN, nullptr);

  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  status = ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return InternalError(UcxText("ucx: ucp_worker_get_address", status));
  worker_address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return OkStatus();
}

UcxContext::~UcxContext() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

Result<uint64_t> UcxContext::NewId() const {
  uint64_t id = 0;
  do {
    LAMINA_ASSIGN_OR_RETURN(const std::string random, RandomBytes(sizeof(id)));
    std::memcpy(&id, random.data(), sizeof(id));
  } while (endpoints.contains(id));
  return id;
}

Result<UcxNumberedEndpoint> UcxContext::MakeEndpoint(const std::string& address, bool is_local,
                                                     uint64_t number) {
  Peer& peer = peers_[address];
  peer.is_local = is_local;
  CloseUnused(peer);
  if (number == UcxOffer::kNotMade) number = peer.num_made;
  if (number > peer.num_made && number - peer.num_made > kMaxMissed) {
    return PeerLost("the peer says that it has made endpoint " + std::to_string(number) +
                    " towards this end, which knows of " + std::to_string(peer.num_made));
  }
  if (const auto unused = peer.unused.extract(number); !unused.empty())
    return UcxNumberedEndpoint{unused.mapped(), number};
  // Those before `number` belong to attempts that this end gave up, or takes up later.
  while (peer.num_made < number) {
    const uint64_t missed = peer.num_made;
    LAMINA_ASSIGN_OR_RETURN(peer.unused[missed], MakeNext(peer, address));
  }
  const uint64_t made = peer.num_made;
  LAMINA_ASSIGN_OR_RETURN(const ucp_ep_h endpoint, MakeNext(peer, address));
  return UcxNumberedEndpoint{endpoint, made};
}

Result<ucp_ep_h> UcxContext::MakeNext(Peer& peer, const std::string& address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  // UCX does not use shared memory for endpoints that shall notice failures. On one machine the
  // rendezvous socket notices them.
  params.err_mode = peer.is_local ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {OnError, this};
  ucp_ep_h endpoint = nullptr;
  const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint);
  ++peer.num_made;  // UCX counts those that fail too
  if (status != UCS_OK)
    return PeerLost(UcxText("ucp_ep_create", status) + "; both ends need a transport in common");
  return endpoint;
}

// Not when they are made: the peer's endpoint may still have to find the one that it belongs to.
void UcxContext::CloseUnused(Peer& peer) {
  // An end that has not joined may get the greeting that one of them is for.
  for (const auto& [id, endpoint] : endpoints) {
    if (!endpoint->has_joined()) return;
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = peer.is_local ? 0 : UCP_EP_CLOSE_FLAG_FORCE;  // as in UcxEndpoint::Close
  for (const auto& [number, unused] : peer.unused) {
    // UCX goes on closing it by itself.
    const ucs_status_ptr_t close = ucp_ep_close_nbx(unused, &param);
    if (UCS_PTR_IS_PTR(close)) ucp_request_free(close);
  }
  peer.unused.clear();
}

void UcxContext::OnError(void* context, ucp_ep_h endpoint, ucs_status_t status) {
  for (const auto& [id, end] : static_cast<UcxContext*>(context)->endpoints)
    end->OnError(endpoint, status);
}

bool UcxContext::Arm() {
  // UCX arms only when it has nothing left to do, and says busy otherwise.
  for (int i = 0; i < kArmAttempts; ++i) {
    const ucs_status_t status = ucp_worker_arm(worker_);
    if (status == UCS_OK) return true;
    if (status != UCS_ERR_BUSY) LAMINA_LOG_ERROR("ucx: {}", UcxText("ucp_worker_arm", status));
    Progress();
  }
  return false;
}

void UcxContext::CheckSockets() {
  std::array<void*, 64> owners;
  const size_t count = poll_set.Ready(owners);
  for (size_t i = 0; i < count; ++i) {
    if (owners[i] != nullptr) static_cast<UcxEndpoint*>(owners[i])->OnSocket();
  }
}

std::string UcxContext::Lanes(ucp_ep_h endpoint) {
  // Keeps the lines such as "#    lane[0]:  4:sysv/memory.0 md[3]  -> md[3]/sysv/sysdev[255] am
  // am_bw#0 rma_bw#0".
  const std::string all = Printed([&](FILE* stream) { ucp_ep_print_info(endpoint, stream); });
  std::string lanes;
  for (size_t at = all.find("lane["); at != std::string::npos; at = all.find("lane[", at)) {
    const size_t end = std::min(all.find('\n', at), all.size());
    lanes += (lanes.empty() ? "" : "; ") + all.substr(at, end - at);
    at = end;
  }
  return lanes;
}

void UcxContext::LogOnce(std::string_view how, const std::string& lanes) {
  if (std::exchange(logged_, true)) return;
  LAMINA_LOG_INFO("ucx {}, {}: {}", ucp_get_version_string(), how,
                  lanes.empty() ? "no transports are known yet" : lanes);
}

Result<std::unique_ptr<UcxMemory>> UcxMemory::Create(UcxContext& context, size_t bytes) {
  std::unique_ptr<UcxMemory> memory(new UcxMemory(context));
  if (bytes == 0) return memory;
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = RoundUpToPages(bytes);
  params.flags = UCP_MEM_MAP_ALLOCATE;
  ucs_status_t status = ucp_mem_map(context.context(), &params, &memory->handle_);
  if (status != UCS_OK) {
    return OutOfSpace(
        UcxText("ucx: ucp_mem_map of " + std::to_string(bytes) + " bytes", status) +
        "; it takes shared memory: see that /dev/shm is large enough (containers: --shm-size)");
  }
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  status = ucp_mem_query(memory->handle_, &attributes);
  if (status != UCS_OK) return InternalError(UcxText("ucx: ucp_mem_query", status));
  memory->bytes_ = {static_cast<std::byte*>(attributes.address), bytes};
  if (reinterpret_cast<uintptr_t>(attributes.address) %
          static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)) !=
      0) {
    return InternalError(
        "ucx: ucp_mem_map gave memory that does not begin at a page; look at UCX_ALLOC_PRIO");
  }
  std::memset(attributes.address, 0, bytes);  // UCX may have taken it from a heap
  return memory;
}

UcxMemory::~UcxMemory() {
  if (handle_ != nullptr) ucp_mem_unmap(context_.context(), handle_);
}

Result<std::string> UcxMemory::PackKey() const {
  if (handle_ == nullptr) return std::string();
  void* key = nullptr;
  size_t bytes = 0;
  const ucs_status_t status = ucp_rkey_pack(context_.context(), handle_, &key, &bytes);
  if (status != UCS_OK) return InternalError(UcxText("ucx: ucp_rkey_pack", status));
  std::string packed(static_cast<const char*>(key), bytes);
  ucp_rkey_buffer_release(key);
  return packed;
}

}  // namespace lamina
