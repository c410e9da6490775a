#include "manager/cluster_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kSmall[] = R"(version: 1
nodes:
- {name: c0, role: compute, port: 7100}
- {name: m0, role: memory, port: 7101, memory: 256MiB}
model: {path: ../models/m}
)";

// kSmall with `from` replaced by `to`.
std::string Changed(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// The folder holds other YAML files too.
bool IsClusterFile(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return path.extension() == ".yaml" && text.str().find("\ncluster:") != std::string::npos;
}

std::string ErrorOf(const std::string& yaml) {
  const Result<ClusterConfig> config = ClusterConfig::Parse(yaml, "/etc/c.yaml");
  EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument) << yaml;
  return config.status().message();
}

TEST(ClusterConfig, AModelThatIsNotHereIsToldWithWhatToType) {
  const std::string yaml = Changed("../models/m", "org/no-such-model:Q4_K_M");
  const Result<ClusterConfig> config = ClusterConfig::Parse(yaml, "/etc/lamina/c.yaml");
  ASSERT_TRUE(config.ok()) << config.status();  // another host may have it
  const Status status = config->LoadModel().status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("lamina pull org/no-such-model:Q4_K_M"));
}

TEST(ClusterConfig, SmallFileGetsDefaults) {
  const Result<ClusterConfig> config = ClusterConfig::Parse(kSmall, "/etc/lamina/c.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->name, "lamina");
  EXPECT_EQ(config->controller_host, "127.0.0.1");
  EXPECT_EQ(config->http_port, 8000);
  ASSERT_EQ(config->nodes.size(), 2u);
  EXPECT_EQ(config->nodes[0].role, NodeRole::kCompute);
  EXPECT_EQ(config->nodes[0].host, "127.0.0.1");
  EXPECT_EQ(config->nodes[1].memory_bytes, int64_t{256} << 20);
  EXPECT_EQ(ClusterConfig::Address(config->nodes[1]), "127.0.0.1:7101");
  EXPECT_EQ(config->secret_file, "");
  EXPECT_EQ(config->model_path, "/etc/models/m");
  EXPECT_EQ(config->served_name, "m");
  EXPECT_EQ(config->transport, TransportKind::kAuto);
  EXPECT_FALSE(config->transport_fallback);
  EXPECT_EQ(config->payload_checksum, Switch::kAuto);
  EXPECT_EQ(config->polling, PollingMode::kAuto);
  EXPECT_FALSE(config->wire_dtype);
  EXPECT_EQ(config->step_timeout, std::chrono::seconds(60));
}

TEST(ClusterConfig, AGgufFileIsServedUnderItsName) {
  const Result<ClusterConfig> config = ClusterConfig::Parse(R"(
version: 1
nodes:
- {name: c0, role: compute, port: 7001}
- {name: m0, role: memory, port: 7101, memory: 256MiB}
model: {path: models/Llama-Q4_K_M-00001-of-00002.gguf}
)",
                                                            "/etc/c.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model_path, "/etc/models/Llama-Q4_K_M-00001-of-00002.gguf");
  EXPECT_EQ(config->served_name, "Llama-Q4_K_M");
}

TEST(ClusterConfig, EveryKeyIsRead) {
  const Result<ClusterConfig> config = ClusterConfig::Parse(R"(
version: 1
cluster: {name: big, controller: head, http_port: 9000}
defaults: {ssh: ssh -p 2222, env: {A: b}, workdir: /srv, log_dir: /var/log/x}
nodes:
- {name: c0, role: compute, host: head, port: 1, device: cpu, threads: 4, price_per_hour: 1.5, cpus: "0-2,7"}
- {name: m0, role: memory, host: "::1", port: 2, memory: 1GiB, threads: 2, device: cuda, host_memory: 256MiB}
model: {path: /m/llama/, served_name: llama, load_format: dummy, kv_dtype: float16}
transport: {kind: verbs, fallback: true, checksum: on, polling: host}
attention: {kv_head_parallel: 1, spread_tokens: 4k, wire_dtype: float16}
pipeline: {num_batches: 3, overlap: on}
scheduling: {queue: deadline, on_hopeless: drop}
slo: {ttft: 500ms, ttft_per_input_token: 2ms, max_ttft: 8s, tpot: 250ms}
limits: {max_num_seqs: 8, max_num_batched_tokens: 64, max_model_len: 32k, max_num_queued_reqs: 5, start_timeout: 1m, step_timeout: 2s, peer_timeout: 300ms, suspect_after: 200ms}
)",
                                                            "c.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->name, "big");
  EXPECT_EQ(config->controller_host, "head");
  EXPECT_EQ(config->http_port, 9000);
  EXPECT_EQ(config->ssh, "ssh -p 2222");
  EXPECT_EQ(config->env, (std::vector<std::pair<std::string, std::string>>{{"A", "b"}}));
  EXPECT_EQ(config->workdir, "/srv");
  EXPECT_EQ(config->log_dir, "/var/log/x");
  EXPECT_EQ(config->nodes[0].threads, 4);
  EXPECT_EQ(config->nodes[0].cpus, "0-2,7");
  EXPECT_EQ(config->nodes[0].price_per_hour, 1.5);
  EXPECT_EQ(ClusterConfig::Address(config->nodes[1]), "[::1]:2");
  EXPECT_EQ(config->nodes[0].host_memory_bytes, 0);
  EXPECT_EQ(config->nodes[1].host_memory_bytes, int64_t{256} << 20);
  EXPECT_EQ(config->model_path, "/m/llama");
  EXPECT_EQ(config->served_name, "llama");
  EXPECT_EQ(config->load_format, LoadFormat::kDummy);
  EXPECT_EQ(config->kv_dtype, DType::kF16);
  EXPECT_EQ(config->transport, TransportKind::kVerbs);
  EXPECT_TRUE(config->transport_fallback);
  EXPECT_EQ(config->payload_checksum, Switch::kOn);
  EXPECT_EQ(config->polling, PollingMode::kHost);
  EXPECT_EQ(config->spread_tokens, 4'000);
  EXPECT_EQ(config->num_batches, 3);
  EXPECT_EQ(config->queue, QueueMode::kDeadline);
  EXPECT_EQ(config->on_hopeless, HopelessMode::kDrop);
  EXPECT_EQ(config->slo, (SloRule{milliseconds(500), milliseconds(2), std::chrono::seconds(8),
                                  milliseconds(250)}));
  EXPECT_EQ(config->max_num_seqs, 8);
  EXPECT_EQ(config->max_num_batched_tokens, 64);
  EXPECT_EQ(config->max_model_len, 32'000);
  EXPECT_EQ(config->max_num_queued_reqs, 5);
  EXPECT_EQ(config->start_timeout, std::chrono::minutes(1));
  EXPECT_EQ(config->step_timeout, std::chrono::seconds(2));
  EXPECT_EQ(config->peer_timeout, milliseconds(300));
  EXPECT_EQ(config->suspect_after, milliseconds(200));
}

TEST(ClusterConfig, SaysWhatIsWrongWithObjectives) {
  const auto message = [](const std::string& section) {
    return ClusterConfig::Parse(
               "version: 1\nmodel: {path: /m}\nnodes: [{name: c0, role: compute, port: 1, memory: "
               "1GiB}]\n" +
                   section + "\n",
               "c.yaml")
        .status()
        .message();
  };
  EXPECT_THAT(message("slo: {tpot: 11m}"), HasSubstr("c.yaml:4: 'tpot' must be at most 10m"));
  EXPECT_THAT(message("slo: {ttft_per_input_token: 2s}"), HasSubstr("must be at most 1s"));
  EXPECT_THAT(message("slo: {max_ttft: 2s}"), HasSubstr("which are not set"));
  EXPECT_THAT(message("slo: {ttft: 3s, max_ttft: 2s}"), HasSubstr("is shorter than 'ttft'"));
  EXPECT_THAT(message("scheduling: {queue: fcfs}"), HasSubstr("fifo, priority, deadline"));
  EXPECT_THAT(message("scheduling: {on_hopeless: wait}"), HasSubstr("serve, drop"));
}

TEST(ClusterConfig, MemoryNodesFormWholeGroups) {
  const std::string head =
      "version: 1\nmodel: {path: /m}\nnodes:\n- {name: c0, role: compute, port: 1}\n";
  std::string nodes;
  for (const char* node : {"{name: m0, role: memory, port: 2, memory: 1GiB}",
                           "{name: m1, role: memory, port: 3, memory: 1GiB}",
                           "{name: m2, role: memory, port: 4, memory: 1GiB}"})
    nodes += std::string("- ") + node + "\n";
  const auto parse = [&](int parallel) {
    return ClusterConfig::Parse(
        head + nodes + "attention: {kv_head_parallel: " + std::to_string(parallel) + "}\n",
        "c.yaml");
  };
  ASSERT_TRUE(parse(3).ok()) << parse(3).status();
  EXPECT_EQ(parse(3)->kv_head_parallel, 3);
  EXPECT_EQ(parse(1)->spread_tokens, 0);
  EXPECT_THAT(parse(2).status().message(),
              ::testing::HasSubstr(
                  "c.yaml:8: 'kv_head_parallel' is 2: the 3 memory nodes cannot be grouped"));
}

TEST(ClusterConfig, AModelIsSharedByAllComputeNodes) {
  const auto parse = [](int num_compute, const std::string& parallel) {
    std::string yaml =
        "version: 1\nmodel: {path: /m}\nnodes:\n- {name: m0, role: memory, port: 1, memory: "
        "1GiB}\n";
    for (int i = 0; i < num_compute; ++i)
      yaml += "- {name: c" + std::to_string(i) + ", role: compute, port: " + std::to_string(2 + i) +
              "}\n";
    return ClusterConfig::Parse(yaml + "parallel: {" + parallel + "}\n", "c.yaml");
  };
  EXPECT_FALSE(parse(2, "")->shares_model());
  ASSERT_TRUE(parse(3, "pipeline_parallel_size: 3").ok());
  EXPECT_EQ(parse(3, "pipeline_parallel_size: 3")->pipeline_parallel_size, 3);
  EXPECT_TRUE(parse(3, "pipeline_parallel_size: 3")->shares_model());
  EXPECT_THAT(
      parse(2, "pipeline_parallel_size: 3").status().message(),
      ::testing::HasSubstr("c.yaml:7: pipeline_parallel_size x tensor_parallel_size is 3: it "
                           "needs as many nodes with the role compute, and there are 2"));
  ASSERT_TRUE(parse(4, "pipeline_parallel_size: 2, tensor_parallel_size: 2").ok());
  EXPECT_EQ(parse(4, "pipeline_parallel_size: 2, tensor_parallel_size: 2")->tensor_parallel_size,
            2);
  EXPECT_THAT(parse(2, "pipeline_parallel_size: 2, tensor_parallel_size: 2").status().message(),
              ::testing::HasSubstr("is 4: it needs"));
  EXPECT_FALSE(parse(2, "pipeline_parallel_size: 0").ok());
}

TEST(ClusterConfig, WhatTravelsHowIsOneOfAFewWords) {
  const auto error = [](const std::string& section) {
    return ClusterConfig::Parse(std::string(kSmall) + section + "\n", "c.yaml").status().message();
  };
  EXPECT_EQ(error("attention: {wire_dtype: bfloat16}"), "");
  EXPECT_THAT(error("attention: {wire_dtype: fp8}"),
              ::testing::AllOf(::testing::HasSubstr("'wire_dtype' is 'fp8'"),
                               ::testing::HasSubstr("float16")));
  EXPECT_THAT(error("attention: {wire_dtype: float8}"),
              ::testing::AllOf(::testing::HasSubstr("'wire_dtype' is 'float8'"),
                               ::testing::HasSubstr("float16")));
  EXPECT_EQ(error("pipeline: {overlap: off}"), "");
  EXPECT_THAT(error("pipeline: {overlap: maybe}"), ::testing::HasSubstr("'overlap' is 'maybe'"));
  EXPECT_THAT(error("network: {modelled_latency: 33}"), ::testing::HasSubstr("modelled_latency"));
}

TEST(ClusterConfig, ANetworkIsModelledOnOneHost) {
  const auto parse = [](const std::string& host) {
    return ClusterConfig::Parse(
        "version: 1\nmodel: {path: /m}\nnetwork: {modelled_latency: 33us, modelled_gb_per_s: "
        "24}\nnodes:\n" +
            std::string("- {name: c0, role: compute, port: 1}\n- {name: m0, role: memory, port: 2, "
                        "memory: 1GiB, host: ") +
            host + "}\n",
        "c.yaml");
  };
  const Result<ClusterConfig> config = parse("127.0.0.1");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->models_network());
  EXPECT_EQ(config->modelled_latency, std::chrono::microseconds(33));
  EXPECT_EQ(config->modelled_gb_per_s, 24);
  EXPECT_THAT(
      parse("10.0.0.2").status().message(),
      ::testing::HasSubstr("c.yaml:3: a network can only be modelled between nodes on one host"));
}

TEST(ClusterConfig, SecretFileIsRelativeToTheYaml) {
  const auto secret_file = [](const std::string& path) {
    const auto config = ClusterConfig::Parse(
        std::string(kSmall) + "cluster: {secret_file: " + path + "}\n", "/etc/lamina/c.yaml");
    return config.ok() ? config->secret_file : config.status().message();
  };
  EXPECT_EQ(secret_file("secret"), "/etc/lamina/secret");
  EXPECT_EQ(secret_file("../keys/secret"), "/etc/keys/secret");
  EXPECT_EQ(secret_file("/run/secrets/lamina"), "/run/secrets/lamina");
}

TEST(ClusterConfig, TlsFilesAreRelativeToTheYamlAndComeTogether) {
  const auto parse = [](const std::string& tls) {
    return ClusterConfig::Parse(std::string(kSmall) + "cluster: {tls: " + tls + "}\n",
                                "/etc/lamina/c.yaml");
  };
  const auto config = parse("{certificate: tls/node.pem, key: /run/keys/node.key, ca: ../ca.pem}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tls.certificate, "/etc/lamina/tls/node.pem");
  EXPECT_EQ(config->tls.key, "/run/keys/node.key");
  EXPECT_EQ(config->tls.ca, "/etc/ca.pem");
  EXPECT_TRUE(parse("{}")->tls.empty());
  EXPECT_THAT(parse("{certificate: a, ca: b}").status().message(),
              HasSubstr("needs 'key': TLS takes certificate, key and ca together"));
  EXPECT_THAT(parse("{certificate: a, key: b}").status().message(), HasSubstr("needs 'ca'"));
  EXPECT_THAT(parse("{certificat: a}").status().message(), HasSubstr("certificat"));
}

TEST(ClusterConfig, HttpsTakesCertificateAndKeyAndACaIfThereIsOne) {
  const auto parse = [](const std::string& https) {
    return ClusterConfig::Parse(std::string(kSmall) + "cluster: {https: " + https + "}\n",
                                "/etc/lamina/c.yaml");
  };
  const auto config = parse("{certificate: server.pem, key: /run/server.key}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->https.certificate, "/etc/lamina/server.pem");
  EXPECT_EQ(config->https.key, "/run/server.key");
  EXPECT_EQ(config->https.ca, "");
  EXPECT_EQ(parse("{certificate: a, key: b, ca: c}")->https.ca, "/etc/lamina/c");
  EXPECT_TRUE(parse("{}")->https.empty());
  EXPECT_THAT(parse("{certificate: a}").status().message(),
              HasSubstr("needs 'key': HTTPS takes certificate and key together"));
  EXPECT_THAT(parse("{ca: a}").status().message(), HasSubstr("needs 'certificate'"));
}

TEST(ClusterConfig, ComputeNodes) {
  EXPECT_EQ(
      ErrorOf(Changed("role: memory, port: 7101, memory: 256MiB", "role: compute, port: 7101")),
      "/etc/c.yaml:2: several compute nodes need a node with the role memory");
  EXPECT_EQ(ErrorOf(Changed("role: compute,", "role: memory, memory: 1GiB,")),
            "/etc/c.yaml:2: no node has the role compute: at least one must");
}

TEST(ClusterConfig, WithoutMemoryNodesTheComputeNodeHoldsTheKvCache) {
  const auto parse = [](const std::string& nodes) {
    return ClusterConfig::Parse("version: 1\nmodel: {path: /m}\nnodes:\n" + nodes, "c.yaml");
  };
  const Result<ClusterConfig> config =
      parse("- {name: c0, role: compute, port: 1, memory: 2GiB}\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->nodes[0].memory_bytes, int64_t{2} << 30);
  EXPECT_THAT(parse("- {name: c0, role: compute, port: 1}\n").status().message(),
              HasSubstr("c.yaml:4: without memory nodes a compute node holds the KV cache, and "
                        "needs 'memory'"));
  EXPECT_THAT(parse("- {name: c0, role: compute, port: 1, memory: 2GiB}\n"
                    "- {name: s0, role: compute, standby: true, port: 2}\n")
                  .status()
                  .message(),
              HasSubstr("c.yaml:5: without memory nodes"));
}

TEST(ClusterConfig, WeightsMayLieOutside) {
  const std::string text =
      "version: 1\nnodes:\n- {name: c0, role: compute, port: 1, memory: 1GiB, offload: {interval: "
      "3, "
      "folder: /var/tmp, buffers: 4, gb_per_s: 1.5}}\nmodel: {path: /m}\n";
  const Result<ClusterConfig> config = ClusterConfig::Parse(text, "/etc/c.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->nodes[0].offload,
            (OffloadOptions{.interval = 3, .folder = "/var/tmp", .buffers = 4, .gb_per_s = 1.5}));
  const auto with = [&](const std::string& offload, const std::string& more = "") {
    return ErrorOf(
        "version: 1\nnodes:\n- {name: c0, role: compute, port: 1, memory: 1GiB, offload: " +
        offload + more + "}\nmodel: {path: /m}\n");
  };
  EXPECT_THAT(with("{folder: /x}"), HasSubstr("'interval'"));
  EXPECT_THAT(with("{interval: 3}"), HasSubstr("where they lie, on a disk of the node's host"));
  EXPECT_TRUE(
      ClusterConfig::Parse("version: 1\nnodes:\n- {name: c0, role: compute, port: 1, memory: "
                           "1GiB, device: \"modelled:A10\", offload: {interval: "
                           "3}}\nmodel: {path: /m}\n",
                           "/etc/c.yaml")
          .ok())
      << "a host's memory needs no folder";
  EXPECT_THAT(with("{interval: 0, folder: /x}"), HasSubstr("'interval'"));
  EXPECT_THAT(with("{interval: many, folder: /x}"), HasSubstr("'interval'"));
  EXPECT_THAT(with("{interval: 3, folder: /x, portion: 0}"), HasSubstr("'portion' has to be more"));
  EXPECT_THAT(with("{interval: 3, folder: /x, portion: 1.5}"), HasSubstr("'portion' has to be"));
  EXPECT_THAT(with("{interval: 3, folder: /x, memory: 1GiB}"), HasSubstr("memory"));
  EXPECT_THAT(with("{interval: 3, folder: /x, buffers: 0}"), HasSubstr("'buffers'"));
  EXPECT_THAT(with("{interval: 3, folder: /x}", ", device: \"cuda:0\""),
              HasSubstr("outside a GPU's memory lies in the host's: leave out 'folder'"));
  EXPECT_THAT(with("{interval: 3, gb_per_s: 2}", ", device: \"cuda:0\""),
              HasSubstr("outside a GPU's memory lies in the host's"));
  EXPECT_THAT(with("{interval: 3, folder: /x, tier: 2}"), HasSubstr("tier"));
}

TEST(ClusterConfig, WhatLiesOutsideMayBeChosenOrGrouped) {
  const auto with = [&](const std::string& offload) {
    return ClusterConfig::Parse(
        "version: 1\nnodes:\n- {name: c0, role: compute, port: 1, memory: 1GiB, offload: " +
            offload + "}\nmodel: {path: /m}\n",
        "/etc/c.yaml");
  };
  Result<ClusterConfig> config =
      with("{interval: auto, record: steps.csv, memory: 512MiB, folder: /x, buffers: 1}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(
      config->nodes[0].offload,
      (OffloadOptions{
          .is_auto = true, .memory_bytes = int64_t{512} << 20, .folder = "/x", .buffers = 1}));
  EXPECT_EQ(config->nodes[0].offload_record, "/etc/steps.csv");
  EXPECT_THAT(with("{interval: auto, folder: /x}").status().message(),
              HasSubstr("that `lamina bench record` has measured"));

  config = with("{group_size: 8, num_in_group: 2, prefetch_step: 3, folder: /x, portion: 0.5}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->nodes[0].offload,
            (OffloadOptions{
                .interval = 8, .num_in_group = 2, .portion = 0.5, .folder = "/x", .buffers = 4}));
  EXPECT_THAT(with("{group_size: 8, folder: /x}").status().message(), HasSubstr("'num_in_group'"));
  EXPECT_THAT(with("{group_size: 2, num_in_group: 3, folder: /x}").status().message(),
              HasSubstr("'num_in_group' is more than 'group_size'"));
}

TEST(ClusterConfig, WhatLiesOutsideMayComeOverASharedBus) {
  const auto with = [&](const std::string& buses, const std::string& offload,
                        const std::string& device = "modelled:A10") {
    return ClusterConfig::Parse(
        "version: 1\nbuses: " + buses +
            "\nnodes:\n- {name: c0, role: compute, port: 1, memory: 1GiB, device: \"" + device +
            "\", offload: " + offload +
            "}\nmodel: {path: /m}\nscheduling: {coordinate_buses: "
            "false}\n",
        "/etc/c.yaml");
  };
  const Result<ClusterConfig> config =
      with("[{name: pcie0, gb_per_s: 24}]", "{interval: 3, bus: pcie0}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->nodes[0].offload,
            (OffloadOptions{.interval = 3, .gb_per_s = 24, .bus = "pcie0"}));
  EXPECT_FALSE(config->coordinate_buses);
  const auto error_of = [&](const auto&... texts) { return with(texts...).status().message(); };
  EXPECT_THAT(error_of("[]", "{interval: 3, bus: pcie0}"),
              HasSubstr("names the bus 'pcie0', which is not in 'buses'"));
  EXPECT_THAT(error_of("[{name: pcie0}]", "{interval: 3, bus: pcie0}"), HasSubstr("'gb_per_s'"));
  EXPECT_THAT(error_of("[{name: pcie0, gb_per_s: 0}]", "{interval: 3, bus: pcie0}"),
              HasSubstr("'gb_per_s' has to be more than 0"));
  EXPECT_THAT(error_of("[{name: pcie0, gb_per_s: 2}]", "{interval: 3, bus: pcie0, gb_per_s: 2}"),
              HasSubstr("whose 'gb_per_s' is said there"));
  EXPECT_THAT(
      error_of("[{name: pcie0, gb_per_s: 2}]", "{interval: 3, bus: pcie0, folder: /x}", "cpu"),
      HasSubstr("'bus' is for modelled devices"));
}

TEST(ClusterConfig, LayersOfAMemoryNodeMayLieOutside) {
  const auto with = [&](const std::string& offload, const std::string& device = "cpu") {
    return ClusterConfig::Parse(
        "version: 1\nnodes:\n- {name: c0, role: compute, port: 1}\n- {name: m0, role: memory, "
        "port: "
        "2, memory: 1GiB, device: \"" +
            device + "\", offload: " + offload + "}\nmodel: {path: /m}\n",
        "/etc/c.yaml");
  };
  const Result<ClusterConfig> config =
      with("{interval: 3, folder: /var/tmp, buffers: 4, gb_per_s: 1.5}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->nodes[1].offload,
            (OffloadOptions{.interval = 3, .folder = "/var/tmp", .buffers = 4, .gb_per_s = 1.5}));
  const auto error_of = [&](const auto&... texts) { return with(texts...).status().message(); };
  EXPECT_THAT(error_of("{interval: 3}"), HasSubstr("where they lie, on a disk of the node's host"));
  EXPECT_THAT(error_of("{interval: auto, folder: /x}"), HasSubstr("'interval'"));
  EXPECT_THAT(error_of("{expansion: 1, folder: /x}"), HasSubstr("has to be more than 1"));
  EXPECT_EQ(with("{expansion: 2, folder: /x}")->nodes[1].offload,
            (OffloadOptions{.expansion = 2, .folder = "/x"}));
  EXPECT_EQ(with("{expansion: auto, folder: /x}")->nodes[1].offload,
            (OffloadOptions{.expansion = 2, .is_auto = true, .folder = "/x"}));
  EXPECT_THAT(error_of("{interval: 3, folder: /x, portion: 0.5}"), HasSubstr("portion"));
  EXPECT_THAT(error_of("{interval: 3, folder: /x}", "modelled:A10"),
              HasSubstr("not there yet for modelled memory nodes: 'device' is 'modelled:A10'"));
  EXPECT_EQ(with("{expansion: 2}", "cuda:0")->nodes[1].offload, (OffloadOptions{.expansion = 2}));
  EXPECT_THAT(error_of("{interval: 3, folder: /x}", "cuda:0"),
              HasSubstr("outside a GPU's memory lies in the host's: leave out 'folder'"));
  EXPECT_THAT(error_of("{expansion: 2}", "cuda:0\", host_memory: \"16MiB"),
              HasSubstr("with 'host_memory': give one of both"));
  EXPECT_THAT(error_of("{expansion: auto}", "cuda:0"),
              HasSubstr("'expansion: auto' is not there for GPUs yet: 'device' is 'cuda:0'"));
}

TEST(ClusterConfig, LayersOfAComputeNodeThatKeepsTheKvMayLieOutside) {
  const auto with = [&](const std::string& more) {
    return ClusterConfig::Parse("version: 1\nnodes:\n- {name: c0, role: compute, port: 1, " + more +
                                    "}\nmodel: {path: /m}\n",
                                "/etc/c.yaml");
  };
  EXPECT_EQ(with("memory: 1GiB, kv_offload: {expansion: 1.5, folder: /x}")->nodes[0].kv_offload,
            (OffloadOptions{.expansion = 1.5, .folder = "/x"}));
  EXPECT_EQ(with("memory: 1GiB, kv_offload: {expansion: auto, max_expansion: 3, folder: /x}")
                ->nodes[0]
                .kv_offload,
            (OffloadOptions{.expansion = 3, .is_auto = true, .folder = "/x"}));
  EXPECT_THAT(with("memory: 1GiB, kv_offload: {expansion: auto, max_expansion: 1, folder: /x}")
                  .status()
                  .message(),
              HasSubstr("'max_expansion' has to be more than 1"));
  EXPECT_TRUE(
      with("memory: 1GiB, device: \"modelled:A10\", kv_offload: {group_size: 4, num_in_group: 2}")
          .ok())
      << "a host's memory needs no folder";
  const auto error_of = [&](const std::string& more) { return with(more).status().message(); };
  EXPECT_THAT(error_of("memory: 1GiB, kv_offload: {expansion: 2}"), HasSubstr("'folder'"));
  EXPECT_THAT(error_of("memory: 1GiB, kv_offload: {folder: /x}"), HasSubstr("'interval'"));
  EXPECT_THAT(error_of("kv_offload: {expansion: 2, folder: /x}"),
              HasSubstr("is for a compute node with 'memory'"));
  EXPECT_EQ(
      with("memory: 1GiB, device: \"cuda:0\", kv_offload: {expansion: 2}")->nodes[0].kv_offload,
      (OffloadOptions{.expansion = 2}));
  EXPECT_THAT(error_of("memory: 1GiB, device: \"cuda:0\", kv_offload: {expansion: auto}"),
              HasSubstr("'expansion: auto' is not there for GPUs yet"));
}

TEST(ClusterConfig, StandbysAreNoNodesOfTheCluster) {
  const std::string standby = "nodes:\n- {name: s0, role: compute, standby: true, port: 7102}\n";
  const Result<ClusterConfig> config =
      ClusterConfig::Parse(Changed("nodes:\n", standby), "/etc/c.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->standbys.size(), 1u);
  EXPECT_EQ(config->standbys[0].name, "s0");
  EXPECT_EQ(config->nodes.size(), 2u);
  EXPECT_EQ(config->IdOf(0), NodeId{1});
  EXPECT_EQ(config->daemons().size(), 3u);

  EXPECT_THAT(ErrorOf(Changed("role: compute", "role: compute, standby: true")),
              HasSubstr("all nodes with the role compute are standbys"));
  EXPECT_THAT(ErrorOf(Changed("role: memory", "role: memory, standby: true")),
              HasSubstr("'standby' is for compute nodes"));
  EXPECT_THAT(ErrorOf(Changed("nodes:\n",
                              "nodes:\n- {name: c0, role: compute, standby: true, "
                              "port: 7102}\n")),
              HasSubstr("two nodes with the name 'c0'"));
}

TEST(ClusterConfig, NodesMustDiffer) {
  EXPECT_EQ(ErrorOf(Changed("name: m0", "name: c0")),
            "/etc/c.yaml:4: there are two nodes with the name 'c0'");
  EXPECT_EQ(ErrorOf(Changed("port: 7101", "port: 7100")),
            "/etc/c.yaml:4: node 'm0' has the address 127.0.0.1:7100 of node 'c0'");
}

TEST(ClusterConfig, AnIpv6HostHasOneText) {
  for (const char* host : {"\"::1\"", "\"[::1]\"", "\"0:0:0:0:0:0:0:1\""}) {
    const Result<ClusterConfig> config = ClusterConfig::Parse(
        Changed("port: 7100", std::string("port: 7100, host: ") + host), "/etc/c.yaml");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->nodes[0].host, "::1");
    EXPECT_EQ(ClusterConfig::Address(config->nodes[0]), "[::1]:7100");
  }
}

TEST(ClusterConfig, NodesAreChecked) {
  EXPECT_EQ(ErrorOf(Changed(", memory: 256MiB", "")),
            "/etc/c.yaml:4: node 'm0' needs 'memory': how much it may use for the KV cache, for "
            "example 4GiB");
  EXPECT_EQ(
      ErrorOf(Changed("role: compute,", "role: compute, memory: 1GiB,")),
      "/etc/c.yaml:3: 'memory' is for memory nodes: where there are any, a compute node holds "
      "no KV cache");
  EXPECT_EQ(ErrorOf(Changed("memory: 256MiB", "memory: 256MiB, host_memory: 1MiB")),
            "/etc/c.yaml:4: 'host_memory' is for memory nodes on a GPU: 'device' is 'cpu'");
  EXPECT_EQ(ErrorOf(Changed("memory: 256MiB", "memory: 256MiB, device: cuda, host_memory: 257MiB")),
            "/etc/c.yaml:4: 'host_memory' is a part of 'memory', and larger than that");
  EXPECT_EQ(ErrorOf(Changed(", port: 7100", "")),
            "/etc/c.yaml:3: node 'c0' needs 'port': where its daemon listens");
  EXPECT_EQ(ErrorOf(Changed("port: 7100", "port: 7100, device: gpu")),
            "/etc/c.yaml:3: 'device' is 'gpu': expected cpu, cuda:N with the number of a GPU, or "
            "modelled:NAME with a NAME of the device "
            "catalog");
  for (const char* device : {"cuda", "'cuda:3'", "cpu"})
    EXPECT_TRUE(
        ClusterConfig::Parse(Changed("port: 7100", std::string("port: 7100, device: ") + device),
                             "/etc/c.yaml")
            .ok())
        << device;
  EXPECT_EQ(ErrorOf(Changed("name: m0", "name: manager")),
            "/etc/c.yaml:4: 'manager' is the name of the manager's own process: choose another");
  EXPECT_EQ(ErrorOf(Changed("name: m0", "name: M0")),
            "/etc/c.yaml:4: 'name' is 'M0': expected up to 63 of the characters a-z, 0-9 and -");
  for (const char* name :
       {"a b", "a/b", "../a", "a'b", "$(a)", "`a`", "a;b", "a.b", "-a", "\u00e9", ""}) {
    EXPECT_EQ(ErrorOf(Changed("name: m0", "name: \"" + std::string(name) + "\"")),
              "/etc/c.yaml:4: 'name' is '" + std::string(name) +
                  "': expected up to 63 of the characters a-z, 0-9 and -");
  }
  EXPECT_EQ(
      ErrorOf(Changed("name: m0", R"(name: "a\nb\e[31m")")),
      "/etc/c.yaml:4: 'name' is 'a?b?[31m': expected up to 63 of the characters a-z, 0-9 and -");
  const std::string longest = ErrorOf(Changed("name: m0", "name: " + std::string(100'000, 'a')));
  EXPECT_LT(longest.size(), 1100u);
  EXPECT_THAT(longest,
              AllOf(StartsWith("/etc/c.yaml:4: 'name' is 'aaaa"),
                    EndsWith("aaaa': expected up to 63 of the characters a-z, 0-9 and -")));
  EXPECT_EQ(ErrorOf(Changed("port: 7100", "port: 7100, host: -oProxyCommand=x")),
            "/etc/c.yaml:3: 'host' is '-oProxyCommand=x': expected a host name or an address");
  EXPECT_EQ(
      ErrorOf(Changed("port: 7100", "port: 7100, gpus: 2")),
      "/etc/c.yaml:3: unknown key 'gpus' under node 'c0'; known keys: name, role, standby, host, "
      "port, device, threads, cpus, price_per_hour, "
      "memory, offload, kv_offload");
}

TEST(ClusterConfig, ModelledDevicesComeFromACatalog) {
  const std::string modelled = Changed("port: 7100", "port: 7100, device: \"modelled:A100-40G\"");
  const Result<ClusterConfig> config = ClusterConfig::Parse(modelled, "/etc/lamina/c.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->nodes[0].device, "modelled:A100-40G");
  EXPECT_EQ(config->nodes[1].device, "cpu");
  EXPECT_EQ(config->device_catalog, "/etc/lamina/devices.yaml")
      << "beside the cluster's file unless another is named";
  EXPECT_EQ(ClusterConfig::Parse(modelled + "cluster: {device_catalog: ../d.yaml}\n",
                                 "/etc/lamina/c.yaml")
                ->device_catalog,
            "/etc/d.yaml");
  EXPECT_EQ(ClusterConfig::Parse(kSmall, "/etc/lamina/c.yaml")->device_catalog, "");
  EXPECT_THAT(ErrorOf(Changed("port: 7100", "port: 7100, device: \"modelled:\"")),
              HasSubstr("'device' is 'modelled:'"));
}

TEST(ClusterConfig, AnUnknownModelledDeviceNamesItsNodeAndTheKnownOnes) {
  const TemporaryFolder folder;
  std::ofstream(folder / "c.yaml")
      << Changed("port: 7100", "port: 7100, device: \"modelled:A11\"")
      << "cluster: {device_catalog: " << SourcePath("/configs/devices.yaml") << "}\n";
  const Status status = ClusterConfig::Load(folder / "c.yaml").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(),
              HasSubstr("node 'c0': device catalog " + SourcePath("/configs/devices.yaml") +
                        " has no 'A11'; it has: A100-40G, "));
}

TEST(ClusterConfig, SharedMemoryNeedsOneHost) {
  const std::string one_host = std::string(kSmall) + "transport: {kind: shm}\n";
  EXPECT_TRUE(ClusterConfig::Parse(one_host, "c.yaml").ok());
  EXPECT_EQ(ErrorOf(Changed("port: 7101", "host: other, port: 7101") + "transport: {kind: shm}\n"),
            "/etc/c.yaml:6: 'kind' is 'shm', but the nodes are not all on one host: use auto, or "
            "set fallback: true");
  EXPECT_THAT(ErrorOf(std::string(kSmall) + "transport: {fallback: maybe}\n"),
              ::testing::HasSubstr("'fallback' is 'maybe': expected true or false"));
}

TEST(ClusterConfig, MissingParts) {
  EXPECT_EQ(ErrorOf("nodes: []\n"), "/etc/c.yaml:1: the top level needs 'version': 1");
  EXPECT_EQ(ErrorOf(Changed("version: 1", "version: 2")),
            "/etc/c.yaml:1: 'version' is '2': expected 1");
  EXPECT_EQ(ErrorOf(Changed("path: ../models/m", "")),
            "/etc/c.yaml:5: 'model' needs 'path': the model's folder or GGUF file");
  EXPECT_EQ(
      ErrorOf(std::string(kSmall) + "limits: {max_num_seqs: 64, max_num_batched_tokens: 8}\n"),
      "/etc/c.yaml:6: 'max_num_batched_tokens' is 8: expected at least max_num_seqs, 64");
}

TEST(ClusterConfig, AbsentFileIsNotFound) {
  EXPECT_EQ(ClusterConfig::Load("/nonexistent/c.yaml").status().code(), StatusCode::kNotFound);
}

TEST(ClusterConfig, EveryShippedFileParses) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("/configs"))) {
    if (!IsClusterFile(entry.path())) continue;
    const Result<ClusterConfig> config = ClusterConfig::Load(entry.path());
    EXPECT_TRUE(config.ok()) << config.status();
    ++num_files;
  }
  EXPECT_GE(num_files, 3);
}

TEST(ClusterConfig, TheLocalFileFindsTheShippedModel) {
  const Result<ClusterConfig> config = ClusterConfig::Load(SourcePath("/configs/local.yaml"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(std::filesystem::exists(config->model_path + "/config.json")) << config->model_path;
  EXPECT_EQ(config->served_name, "tiny-stories");
}

}  // namespace
}  // namespace lamina
