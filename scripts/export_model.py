#!/usr/bin/env python3
"""Exports a model that lamina has no forward code for: writes CHECKPOINT/lamina_graph.json, which every lamina command then reads.

  export_model.py CHECKPOINT [--rows N] [--out FILE]

CHECKPOINT is a Hugging Face folder (config.json, *.safetensors) of a decoder that transformers can run with PyTorch's
scaled_dot_product_attention. Needs torch 2.6 and transformers, 4.51 or 5; no weight is read, only their names and shapes. What the file holds
stands in docs/export.md. An export sees a window of attention only if it has more rows than the window, so that N is by default larger
than config.json's sliding_window.
"""
import argparse
import json
import pathlib
import re
import sys

import torch
import transformers
from safetensors import safe_open
from torch.fx.operator_schemas import normalize_function

try:
    from transformers.initialization import no_init_weights  # transformers 5
except ImportError:
    from transformers.modeling_utils import no_init_weights

FORMAT, VERSION = "lamina graph", 1
MIN_ROWS = 32
MOST_ELEMENTS = 1 << 16  # of a constant
NEVER = -1e9  # what a mask adds to a score that does not count is below this
# Settings that transformers' scaled_dot_product_attention leaves out without a word: value that means nothing is left out.
DROPPED = {"attn_logit_softcapping": None, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True}

# What checkpoints call the matrices of an expert: gate, up, down.
EXPERT_MATRICES = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))
EXPERTS = "lamina.experts.default"


@torch.library.custom_op("lamina::experts", mutates_args=())
def experts(self: torch.Tensor, index: torch.Tensor, scores: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """A mixture of experts as one operator. Which experts a token takes depends on its data, so that what they compute cannot be traced."""
    raise NotImplementedError("only traced")


@experts.register_fake
def _(self, index, scores, gate_up, down):
    return torch.empty_like(self)


def experts_forward(module, hidden_states, top_k_index, top_k_weights):
    """Stands in for transformers' implementations of experts (integrations/moe.py)."""
    return torch.ops.lamina.experts(hidden_states, top_k_index, top_k_weights, module.gate_up_proj, module.down_proj)


def take_experts(model):
    """Has transformers 5 call experts_forward, if the model has experts that are as lamina's."""
    mixtures = [module for module in model.modules() if hasattr(module, "is_concatenated") and hasattr(module, "config")]
    for module in mixtures:
        x = torch.tensor([-1.0, 2.0])
        is_silu = hasattr(module, "act_fn") and torch.allclose(module.act_fn(x), torch.nn.functional.silu(x))
        for wrong, what in ((not module.has_gate, "no gates"), (module.has_bias, "biases"), (getattr(module, "has_post_expert_norm", False), "norms"),
                            (not module.is_concatenated or module.is_transposed, "matrices in another layout"),
                            (not is_silu, "another activation than SiLU"),
                            ("default" not in getattr(type(module)._apply_gate, "__name__", ""), "gates of their own")):
            if wrong:
                raise SystemExit(f"{type(module).__name__} has {what}: only experts that are down(silu(gate x) * up x) can be exported")
    if mixtures:
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

        ALL_EXPERTS_FUNCTIONS.register("lamina", experts_forward)
        for module in mixtures:
            module.config._experts_implementation = "lamina"


class Decoder(torch.nn.Module):
    """A row of logits for each token and its position: all that lamina needs to know of a model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, positions):
        # Without a mask transformers 5 looks for several sequences in the positions, which makes every mask depend on them.
        whole = torch.ones(tokens.shape, dtype=torch.long) if transformers.__version__ >= "5" else None
        return self.model(input_ids=tokens, attention_mask=whole, position_ids=positions, use_cache=False).logits


def trace(model, rows):
    """torch.export's program over `rows` tokens, without in-place operators."""
    example = (torch.zeros(1, rows, dtype=torch.long), torch.arange(rows)[None])
    take_experts(model)
    try:
        with torch.no_grad():
            return torch.export.export(Decoder(model), example, strict=False).run_decompositions({})
    except torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode as error:
        where = re.findall(r'File ".*?(modeling_\w+\.py)", line (\d+)', str(error)) or [("its code", "?")]
        raise SystemExit(f"the model decides by its data what it computes ({where[-1][0]}:{where[-1][1]}), which torch.export cannot follow. Mixtures "
                         "of experts can be exported where transformers 5 has several implementations of them (use_experts_implementation)") from error


def checkpoint_names(folder):
    names = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            names.update(file.keys())
    return names


def renamed_parts(model_type):
    """Parts of names that transformers 5 changed: (in checkpoints, in the model)."""
    try:
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping
    except ImportError:
        return []
    rules = [rule for rule in get_checkpoint_conversion_mapping(model_type) or [] if type(rule).__name__ == "WeightRenaming"]
    return [tuple(pattern[0].replace("\\", "").strip("^$") for pattern in (rule.source_patterns, rule.target_patterns)) for rule in rules]


class Writer:
    def __init__(self, model, program, stored, rows):
        self.renamed = renamed_parts(model.config.model_type)  # (old, new)
        self.rows, self.program, self.stored = rows, program, stored
        self.parameters = dict(model.named_parameters(remove_duplicate=False))
        self.base = model.base_model_prefix + "."
        self.known = {}  # constants by node
        self.out = {"weights": {}, "constants": {}, "nodes": []}

    def tensor_name(self, parameter):
        """What the checkpoint calls it: one of the names that share the parameter, with or without the model's prefix."""
        same = [name for name, other in self.parameters.items() if other is self.parameters[parameter]]
        for name in [parameter, *same]:
            for old in self.old_names(name):
                for spelt in (old, old.removeprefix(self.base), self.base + old):
                    if not self.stored or spelt in self.stored:
                        return spelt
        raise SystemExit(f"the checkpoint has no tensor {parameter}")

    def old_names(self, name):
        """The name, and what it was before transformers renamed modules: checkpoints keep that."""
        names = [name]
        for old, new in self.renamed:
            names += [other.replace(new, old) for other in names if new in other]
        return names

    def experts(self, node):
        """The arguments of the operator for a mixture of experts: each expert's matrices by their names in the checkpoint."""
        parameter = self.program.graph_signature.inputs_to_parameters[node.args[3].name].removeprefix("model.")
        stem, layer = parameter.rsplit(".", 1)[0], re.search(r"layers\.(\d+)\.", parameter)
        at = re.compile(rf"(.*\blayers\.{layer[1]}\.(?:.*\.)?experts)\.0\.(\w+)\.weight" if layer else r"(.*experts)\.0\.(\w+)\.weight")
        found = dict(match.groups()[::-1] for match in map(at.fullmatch, sorted(self.stored)) if match)
        if self.stored and not found:
            raise SystemExit(f"the checkpoint has no matrices of single experts for {stem}: lamina cannot read those of all experts in one tensor")
        matrices = next((names for names in EXPERT_MATRICES if names[0] in found), EXPERT_MATRICES[0])
        prefix = found.get(matrices[0], stem)
        num_experts, both, inputs = node.args[3].meta["val"].shape
        outputs = node.args[4].meta["val"].shape[1]
        shapes = ([both // 2, inputs], [both // 2, inputs], [outputs, both // 2])
        lists = {"gate": [], "up": [], "down": []}
        for expert in range(num_experts):
            for of, matrix, shape in zip(lists, matrices, shapes):
                name = f"{node.name}_{of}_{expert}"
                tensor = f"{prefix}.{expert}.{matrix}.weight"
                if self.stored and tensor not in self.stored:
                    raise SystemExit(f"the checkpoint has no tensor {tensor}")
                self.out["weights"][name] = {"tensor": tensor, "shape": shape}
                lists[of].append({"node": name})
        return {**{name: self.argument(value) for name, value in zip(("self", "index", "scores"), node.args)}, **lists}

    def fold(self):
        """What depends on no token and no position is a constant, and known here."""
        signature = self.program.graph_signature
        buffers = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        values = {**self.program.state_dict, **self.program.constants}
        for node in self.program.graph.nodes:
            if node.name in buffers:
                self.known[node] = values[buffers[node.name]]
            elif node.op == "call_function" and all(input in self.known for input in node.all_input_nodes):
                look_up = lambda input: self.known[input]
                self.known[node] = node.target(*torch.fx.map_arg(node.args, look_up), **torch.fx.map_arg(node.kwargs, look_up))

    def constant(self, node):
        value = self.known[node]
        if not isinstance(value, torch.Tensor):
            raise SystemExit(f"{node.name}: a constant that is no tensor: {type(value).__name__}")
        described = {"shape": list(value.shape)}
        if value.dim() >= 2 and value.shape[-2:] == (self.rows, self.rows) and value.numel() == self.rows**2:
            described["sees"] = self.seen(node, value.reshape(self.rows, self.rows))
        elif value.numel() <= MOST_ELEMENTS:
            described["data"] = value.flatten().tolist()
        else:
            raise SystemExit(f"{node.name}: a constant of {value.numel()} elements ({source(node)})")
        return described

    def seen(self, node, mask):
        """[first, end) of the keys that each row attends to."""
        if mask.dtype is not torch.bool:
            if not ((mask == 0) | (mask < NEVER)).all():
                raise SystemExit(f"{node.name}: a mask that weighs keys, which attention cannot ({source(node)})")
            mask = mask == 0
        ranges = []
        for row in mask:
            keys = row.nonzero().flatten().tolist()
            if not keys or keys != list(range(keys[0], keys[-1] + 1)):
                raise SystemExit(f"{node.name}: a mask that leaves out keys between others ({source(node)})")
            ranges.append([keys[0], keys[-1] + 1])
        return ranges

    def argument(self, value):
        if isinstance(value, torch.fx.Node):
            if value in self.known:
                if value.name not in self.out["constants"]:
                    self.out["constants"][value.name] = self.constant(value)
            return {"node": value.name}
        if isinstance(value, (list, tuple)):
            return [self.argument(item) for item in value]
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if abs(value) < float("inf") else str(value)
        return str(value)  # dtypes, devices

    def node(self, node):
        if hasattr(node.target, "_schema"):
            arguments = normalize_function(node.target, node.args, node.kwargs, normalize_to_only_use_kwargs=True).kwargs
            given = {argument.name: argument.default_value for argument in node.target._schema.arguments if argument.has_default_value()}
            # "input" is how the normaliser spells "self".
            given.update({"self" if name == "input" and "self" in names(node) else name: value for name, value in arguments.items()})
        else:
            given = dict(zip(("self", "index"), node.args))  # getitem of several outputs
        value = node.meta.get("val")
        self.out["nodes"].append({
            "name": node.name, "op": str(node.target) if hasattr(node.target, "_schema") else node.target.__name__,
            "args": self.experts(node) if str(node.target) == EXPERTS else {name: self.argument(value) for name, value in given.items()},
            "shape": list(value.shape) if isinstance(value, torch.Tensor) else None,
            "module": module(node), "source": source(node)})

    def write(self, config):
        self.fold()
        (result,) = self.program.graph.output_node().args[0]
        needed, waiting = set(), [result]
        while waiting:
            node = waiting.pop()
            if node not in needed and node not in self.known:
                needed.add(node)
                waiting += node.all_input_nodes
        weights = self.program.graph_signature.inputs_to_parameters
        of_all_experts = {matrix for node in needed if str(node.target) == EXPERTS for matrix in node.args[3:]}
        for node in self.program.graph.nodes:
            if node not in needed or node in of_all_experts:
                continue
            if node.name in weights:
                self.out["weights"][node.name] = {"tensor": self.tensor_name(weights[node.name].removeprefix("model.")),
                                                  "shape": list(node.meta["val"].shape)}
            elif node.op == "call_function":
                self.node(node)
            elif node.op != "placeholder":
                raise SystemExit(f"{node.name}: {node.op} has no place in a graph of operators")
        return {"format": FORMAT, "version": VERSION,
                "written_by": f"torch {torch.__version__}, transformers {transformers.__version__}", "rows": self.rows,
                "max_positions": config.max_position_embeddings, "tokens": "tokens", "positions": "positions",
                "logits": result.name, **self.out}


def names(node):
    return [argument.name for argument in node.target._schema.arguments]


def module(node):
    """The path of the module whose forward code this is, as the checkpoint spells it."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return stack[-1][0].removeprefix("model").removeprefix(".") if stack else ""


def source(node):
    """File, line and text of the forward code, the innermost that is the model's own."""
    lines = (node.meta.get("stack_trace") or "").splitlines()
    found = ""
    for where, text in zip(lines, lines[1:] + [""]):
        if where.lstrip().startswith('File "') and "/torch/" not in where and "<eval" not in where:
            _, path, rest = where.split('"', 2)
            found = f"{pathlib.Path(path).name}:{rest.split('line ')[1].split(',')[0]}: {text.strip()}"
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--rows", type=int, help="tokens of the exported program")
    parser.add_argument("--out", type=pathlib.Path, help="default: CHECKPOINT/lamina_graph.json")
    arguments = parser.parse_args()
    config = transformers.AutoConfig.from_pretrained(arguments.checkpoint)
    for name, neutral in DROPPED.items():
        if getattr(config, name, neutral) not in (neutral, None):
            raise SystemExit(f"{name} is {getattr(config, name)}: transformers' scaled_dot_product_attention would leave it out")
    if not hasattr(config, "max_position_embeddings"):
        raise SystemExit("config.json has no max_position_embeddings: this architecture cannot be exported yet")
    window = getattr(config, "sliding_window", None) or 0
    if window >= config.max_position_embeddings:
        window = 0  # it never ends before the context does
    rows = arguments.rows or max(MIN_ROWS, window + 2)
    if rows <= window:
        raise SystemExit(f"--rows {rows}: the window of {window} tokens is only seen in an export of more rows")
    with no_init_weights():
        model = transformers.AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32, attn_implementation="sdpa").eval()
    model.tie_weights()
    graph = Writer(model, trace(model, rows), checkpoint_names(arguments.checkpoint), rows).write(config)
    out = arguments.out or arguments.checkpoint / "lamina_graph.json"
    nodes = graph.pop("nodes")
    lines = ",\n".join(json.dumps(node, separators=(",", ":")) for node in nodes)
    out.write_text(json.dumps(graph, separators=(",", ":"))[:-1] + ',"nodes":[\n' + lines + "]}\n")
    print(f"{out}: {len(nodes)} operators over {rows} tokens, {len(graph['weights'])} weights", file=sys.stderr)


if __name__ == "__main__":
    main()
