#include "cli/run_server.h"

#include <memory>

#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cost/node_device.h"

namespace lamina {
namespace {

CLI::Validator LocalDevice() {
  return CLI::Validator(
      [](const std::string& name) {
        const bool is_local = IsDeviceName(name) && !IsModelledName(name);
        return is_local ? "" : "'" + name + "': expected cpu, or cuda:N with the number of a GPU";
      },
      "DEVICE");
}

}  // namespace

void RegisterServe(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand(
      "serve", "Serve a model over an OpenAI-compatible API, with its attention on memory nodes");
  command->add_option(
      "MODEL", options->model,
      "Checkpoint folder (Hugging Face layout), GGUF file, or name of a model that was pulled, "
      "such "
      "as OWNER/NAME, OWNER/NAME@REVISION or OWNER/NAME:Q4_K_M; without --cluster a local cluster "
      "is started for it");
  command
      ->add_option("--cluster", options->cluster_file,
                   "Cluster YAML whose nodes run already (see `lamina cluster up`)")
      ->envname("LAMINA_CLUSTER");
  AddOption(*command, "--compute-nodes", options->num_compute_nodes,
            "Compute nodes of the local cluster, each with the whole model; 0: one, or as many as "
            "--pipeline-parallel-size and "
            "--tensor-parallel-size need")
      ->check(CLI::Range(0, 16));
  AddOption(*command, "--memory-nodes", options->num_memory_nodes,
            "Memory nodes of the local cluster; 0: attention stays on the compute node")
      ->check(CLI::Range(0, 64));
  AddOption(*command, "--memory", options->memory,
            "KV cache of each memory node of the local cluster, such as 8GiB; default: what "
            "--memory-utilization 0.9 gives, but no more than --max-num-seqs requests can use; on "
            "a GPU 256MiB");
  AddOption(*command, "--memory-utilization", options->memory_utilization,
            "In place of --memory: memory nodes share this part of the machine's free memory, such "
            "as 0.8, less what weights take")
      ->check(CLI::Range(0.0, 1.0));
  AddOption(*command, "--compute-threads", options->compute_threads,
            "Threads of the local compute node; 0: all cores")
      ->check(CLI::Range(0, 1024));
  AddOption(*command, "--memory-threads", options->memory_threads,
            "Threads of each local memory node; 0: all cores")
      ->check(CLI::Range(0, 1024));
  AddOption(*command, "--device", options->device,
            "What local compute and memory nodes work on: cpu, or cuda:N with the number of a GPU")
      ->check(LocalDevice());
  AddOption(*command, "--memory-device", options->memory_device,
            "Another device for the memory nodes, such as cpu; default: --device's")
      ->check(LocalDevice());
  AddOption(*command, "--transport", kTransportKinds, options->transport,
            "Data path: " + kTransportKinds.listed() + "; default: auto, or the YAML's");
  AddOption(*command, "--kv-dtype", kKvDTypeChoices, options->kv_dtype,
            "KV cache: " + kKvDTypeChoices.listed() +
                " (fp8: E4M3 without scales; per_token_head: with one for each token and head)");
  AddOption(*command, "--wire-dtype", kWireDTypeChoices, options->wire_dtype,
            "q and attention output between the nodes: " + kWireDTypeChoices.listed() +
                "; auto: float32, or the model's with modelled devices");
  AddOption(*command, "--kv-head-parallel", options->kv_head_parallel,
            "So many memory nodes hold different kv_heads of the same tokens; 0: 1 or the YAML's")
      ->check(CLI::NonNegativeNumber);
  AddOption(*command, "--spread-tokens", options->spread_tokens,
            "Sequences of more tokens, such as 4k, are spread over several memory nodes; default: "
            "none is, or the YAML's");
  command->add_flag("--no-enable-prefix-caching", options->no_prefix_caching,
                    "Forget the KV of a request with it; default: it stays, while there is room, "
                    "for requests that begin alike");
  AddOption(*command, "--pipeline", kPipelineModes, options->pipeline,
            "How batches share compute nodes: " + kPipelineModes.listed() +
                "; default: none (the nodes started here share cores), or the YAML's");
  AddOption(*command, "--num-batches", options->num_batches,
            "In flight at a time: while memory nodes attend for one, compute nodes run slices of "
            "another; 0: the policy's or the YAML's")
      ->check(CLI::Range(0, 16));
  AddOption(*command, "--pipeline-parallel-size", options->pipeline_parallel_size,
            "So many compute nodes hold and run different layers of the model; 0: 1 or the YAML's")
      ->check(CLI::Range(0, 256));
  AddOption(*command, "--tensor-parallel-size", options->tensor_parallel_size,
            "So many compute nodes run each layer together, with their share of its heads and its "
            "MLP each; 0: 1 or the YAML's")
      ->check(CLI::Range(0, 256));
  AddOption(*command, "--load-format", kLoadFormats, options->load_format,
            kLoadFormats.listed() + " (random weights)");
  AddOption(*command, "--host", options->host,
            "Address of the HTTP server; default: loopback, or the YAML's controller");
  AddOption(*command, "--port", options->port,
            "Port of the HTTP server; -1: 8000 or the YAML's, 0: any free one")
      ->check(CLI::Range(-1, 65535));
  AddOption(*command, "--served-model-name", options->served_name,
            "Name that clients use; default: that of the folder or file");
  AddOption(*command, "--max-model-len", options->max_model_len,
            "Tokens of prompt and answer, such as 32k; default: the model's");
  AddOption(*command, "--max-num-seqs", options->max_num_seqs,
            "Sequences that decode in one step; 0: 64 or the YAML's")
      ->transform(SizeAsNumber())
      ->check(CLI::NonNegativeNumber);
  AddOption(*command, "--max-num-batched-tokens", options->max_num_batched_tokens,
            "Tokens of one step; 0: 512 or the YAML's")
      ->transform(SizeAsNumber())
      ->check(CLI::NonNegativeNumber);
  AddOption(*command, "--max-num-queued-reqs", options->max_num_queued_reqs,
            "Waiting requests before 503; 0: 1024 or the YAML's")
      ->transform(SizeAsNumber())
      ->check(CLI::NonNegativeNumber);
  AddOption(*command, "--scheduling-policy", kQueueModes, options->queue,
            "Which waiting request is served next: " + kQueueModes.listed() +
                " (whose next token is due first); default: fifo, or the YAML's");
  AddOption(*command, "--slo-ttft", options->slo_ttft,
            "When the first token of a request is due that names no objectives, such as 2s; "
            "default: none, or the YAML's");
  AddOption(*command, "--slo-tpot", options->slo_tpot,
            "Likewise the time for each further token, such as 50ms");
  AddOption(*command, "--on-hopeless", kHopelessModes, options->on_hopeless,
            kHopelessModes.listed() +
                " (with 503) requests that wait when their first token is due; default: serve, or "
                "the YAML's");
  AddOption(*command, "--drain-timeout", options->drain_timeout_s,
            "Seconds that requests under way get to end in after SIGTERM or Ctrl-C; -1: 10 or the "
            "YAML's; a second Ctrl-C ends at once")
      ->check(CLI::Range(-1, 86400));
  AddOption(*command, "--api-key-file", options->api_key_file,
            "File of mode 600 with the key that clients must send as a bearer token; /health, "
            "/ping, /version and /metrics need none");
  AddOption(*command, "--api-key", options->api_key,
            "The key itself, which other users can see in the list of processes");
  options->api.AddTo(*command);
  AddOption(*command, "--trace-out", options->trace_out,
            "Write what the nodes do to this file, for ui.perfetto.dev; 1 GB at most");
  AddOption(*command, "--prompt", options->prompt,
            "Answer this first, and show where its KV cache lived");
  AddOption(*command, "--max-tokens", options->max_tokens, "Of that answer")
      ->transform(SizeAsNumber())
      ->check(CLI::PositiveNumber);
  AddOption(*command, "--once", options->once, "Stop after that answer");
  command->footer(
      "Examples:\n  lamina serve models/tiny-stories --memory-nodes 2\n  lamina serve "
      "models/tiny-stories --device cuda:0 --memory 8GiB\n"
      "  lamina serve --cluster configs/local.yaml");
  OnRun(*command, "lamina", [options] { return Serve(*options); });
}

}  // namespace lamina
