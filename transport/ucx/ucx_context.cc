#include "transport/ucx/ucx_context.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/log.h"
#include "transport/rdma_host.h"
#include "transport/sealed_memory.h"
#include "transport/ucx/ucx_endpoint.h"
#include "transport/ucx/ucx_log.h"

namespace lamina {
namespace {

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
  if (!UcxTrustedDevices().empty() && !HasRdmaDevice())
    return NotFound("ucx: " + std::string(kUcxTrustedDevices) +
                    " is set, but this machine has no RDMA device");
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

UcxContext::~UcxContext() {
  if (context_ != nullptr) ucp_cleanup(context_);
}

void UcxContext::CheckSockets() {
  std::array<void*, 64> owners;
  const size_t count = poll_set.Ready(owners);
  for (size_t i = 0; i < count; ++i) {
    if (owners[i] != nullptr) static_cast<UcxEndpoint*>(owners[i])->OnSocket();
  }
}

void UcxContext::LogOnce(std::string_view how, const std::string& lanes) {
  if (std::exchange(logged_, true)) return;
  LAMINA_LOG_INFO("ucx {}, {}: {}", ucp_get_version_string(), how,
                  lanes.empty() ? "no transports are known yet" : lanes);
}

bool WantsUcxPuts() {
  const char* const wish = std::getenv("LAMINA_UCX_PATH");
  return wish != nullptr && std::string_view(wish) == "puts";
}

Result<std::unique_ptr<UcxMemory>> UcxMemory::Create(UcxContext& context, size_t bytes) {
  std::unique_ptr<UcxMemory> memory(new UcxMemory(context));
  if (bytes == 0) return memory;
  if (WantsUcxPuts()) {
    LAMINA_RETURN_IF_ERROR(memory->Allocate(bytes));
    return memory;
  }
  LAMINA_RETURN_IF_ERROR(memory->Map(bytes));
  if (!UcxTrustedDevices().empty()) LAMINA_RETURN_IF_ERROR(memory->Register());
  return memory;
}

Status UcxMemory::Map(size_t bytes) {
  LAMINA_ASSIGN_OR_RETURN(file_, CreateSealedMemory(RoundUpToPages(bytes)));
  LAMINA_ASSIGN_OR_RETURN(mapping_, Mapping::Shared(file_.get(), RoundUpToPages(bytes)));
  bytes_ = mapping_.bytes().first(bytes);
  return OkStatus();
}

Status UcxMemory::Register() {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = mapping_.bytes().data();
  params.length = mapping_.bytes().size();
  const ucs_status_t status = ucp_mem_map(context_.context(), &params, &handle_);
  if (status == UCS_OK) return OkStatus();
  return OutOfSpace(
      UcxText("ucx: ucp_mem_map of " + std::to_string(params.length) + " bytes", status));
}

Status UcxMemory::Allocate(size_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = RoundUpToPages(bytes);
  params.flags = UCP_MEM_MAP_ALLOCATE;
  ucs_status_t status = ucp_mem_map(context_.context(), &params, &handle_);
  if (status != UCS_OK) {
    return OutOfSpace(
        UcxText("ucx: ucp_mem_map of " + std::to_string(bytes) + " bytes", status) +
        "; it takes shared memory: see that /dev/shm is large enough (containers: --shm-size)");
  }
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  status = ucp_mem_query(handle_, &attributes);
  if (status != UCS_OK) return InternalError(UcxText("ucx: ucp_mem_query", status));
  bytes_ = {static_cast<std::byte*>(attributes.address), bytes};
  if (reinterpret_cast<uintptr_t>(attributes.address) %
          static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)) !=
      0) {
    return InternalError(
        "ucx: ucp_mem_map gave memory that does not begin at a page; look at UCX_ALLOC_PRIO");
  }
  std::memset(attributes.address, 0, bytes);  // UCX may have taken it from a heap
  return OkStatus();
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
