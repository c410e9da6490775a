#include "node/daemon.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <utility>

#include "base/cpu_list.h"
#include "base/descriptors.h"
#include "wire/protobuf_log.h"

namespace lamina {

Daemon::Daemon(const std::string& kind, const std::string& program, const std::string& description,
               NodeOptions& options)
    : kind_(kind),
      options_(options),
      drain_seconds_(static_cast<int>(
          std::chrono::duration_cast<std::chrono::seconds>(options.drain_timeout).count())),
      app_(std::make_unique<CLI::App>(description, program)) {
  CLI::App& app = *app_;
  app.add_option("--name", options.name, "name in the cluster YAML")->capture_default_str();
  app.add_option("--listen", options.listen, "HOST:PORT for the manager; port 0 takes any free one")
      ->capture_default_str();
  app.add_option("--secret-file", options.secret_file,
                 "file with the cluster's secret; off the loopback there must be one, or TLS");
  app.add_option("--tls-certificate", options.tls.certificate,
                 "this host's certificate, for TLS with the manager; needs the next two");
  app.add_option("--tls-key", options.tls.key, "the certificate's private key, mode 600");
  app.add_option("--tls-ca", options.tls.ca, "certificate that the manager's must come from");
  app.add_option("--device", device_,
                 "cpu; cuda:N: GPU number N; or modelled:NAME: computes nothing and takes the time "
                 "that device NAME of the catalog would")
      ->capture_default_str();
  app.add_option("--device-catalog", device_catalog_,
                 "file with the modelled devices, such as configs/devices.yaml");
  app.add_option("--threads", options.num_threads,
                 "threads of the kernels; 0: all cores, or those of --cpus")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option(
      "--cpus", cpus_,
      "cores to run on, such as 0-3,8, and to pin the threads of the kernels to; default: any");
  app.add_option("--drain-timeout", drain_seconds_,
                 "seconds: after SIGTERM or Ctrl-C it goes on until the manager's session is over, "
                 "at most so long; a second Ctrl-C ends it")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--leave-with-stdin", leave_with_stdin_,
               "leave when stdin ends, and only then: SIGTERM and Ctrl-C are for whoever holds its "
               "other end");
}

Daemon::~Daemon() = default;

std::optional<int> Daemon::Prepare(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? 0 : 2;
  }
  if (leave_with_stdin_) IgnoreLeaveSignals();
  InitLogging(kind_ + " " + options_.name);
  TakeProtobufLog();
  RaiseDescriptorLimit();
  options_.drain_timeout = std::chrono::seconds(drain_seconds_);
  Status status = TakeDevice();
  if (status.ok()) status = TakeCpus();
  if (status.ok()) return std::nullopt;
  LAMINA_LOG_ERROR("{}", status.message());
  return 2;
}

Status Daemon::TakeDevice() {
  Result<NodeDevice> found = FindDevice(device_, device_catalog_);
  if (!found.ok()) return found.status().WithContext("--device");
  options_.device = *std::move(found);
  if (IsModelledName(device_))
    LAMINA_LOG_WARN("{}: nothing is computed, answers are arbitrary", device_);
  return OkStatus();
}

Status Daemon::TakeCpus() {
  if (cpus_.empty()) return OkStatus();
  options_.pin_threads = true;
  return RunOnCpus(cpus_, options_.num_threads).WithContext("--cpus");
}

}  // namespace lamina
