#!/usr/bin/env python3
"""Shows what the simulation of whole clusters (tests/sim) is worth: plants one-line bugs in a copy of this tree, one at a time, and
says which seed finds each of them.

  planted_bugs.py [--only NAME] [--seeds N] [--jobs N] [--build-dir DIR]
  planted_bugs.py --list    prints the bugs, and fails if the text that one of them replaces is not there exactly once
    --only NAME      this bug alone; may be given several times
    --seeds N        seeds 1..N look for each bug, 5000 unless told
    --jobs N         so many compilers at a time, and beside them so many simulations; as many as there are cores unless told
    --build-dir DIR  where the copy and its build are kept; a second run then compiles little. A temporary folder unless told

The copy has what git tracks here, with what was changed since the last commit. Without a bug no seed of the first 500 may fail.
Exit status: 0 if every bug was found, 1 if one was not or could not be planted.
Example:
  scripts/planted_bugs.py --only released-is-not-told --build-dir /tmp/planted
"""
import argparse
import concurrent.futures
import dataclasses
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SEEDS_WITHOUT_BUG = 500
# sim_cluster ends a single run that takes 60 s. A bug may also make all of them slow.
LONGEST_RUN_SECONDS = 1800
MEMORY_BYTES = 8 << 30


@dataclasses.dataclass
class Bug:
    name: str
    file: str
    old: str  # is there exactly once
    new: str
    means: str


BUGS = [
    Bug("untaken-token-is-told", "manager/engine_core.cc",
        "  for (const size_t taken : completed.taken) {",
        "  for (size_t taken = 0; taken < sampled.size(); ++taken) {",
        "the client is told of a token that the scheduler did not take, and of the same one again later"),
    Bug("late-result-counts", "scheduler/scheduler.cc",
        "  sequence.untold_left = false;\n  sequence.num_in_flight = 0;\n}",
        "  sequence.untold_left = false;\n}",
        "a row in flight counts as computed for a sequence that has lost its slots since"),
    Bug("late-failure-counts", "manager/engine_core.cc",
        "    if (scheduler().IsInStep(failed.sequence, static_cast<int>(batch))) failures.push_back(&failed);",
        "    failures.push_back(&failed);",
        "a failure in a step counts against a sequence that is of it no more"),
    Bug("starts-while-it-leaves", "scheduler/next_step.cc",
        "    if (it == sequences.end() || IsLeaving(top->sequence)) break;",
        "    if (it == sequences.end()) break;",
        "a sequence starts again while a step still reads what it had before"),
    Bug("released-is-not-told", "scheduler/scheduler.cc",
        "  released.push_back(sequence);",
        "  if (extents.size() > 1) released.push_back(sequence);",
        "a node is not told that a sequence has given up its slots, unless others had some too"),
    Bug("shared-prefix-is-long", "scheduler/next_step.cc",
        "  sequence.num_computed = sequence.num_shared = beginning.length;",
        "  sequence.num_computed = sequence.num_shared = std::min(beginning.length + 1, sequence.num_tokens() - 1);",
        "a sequence that shares a prefix does not compute the first token behind it"),
    Bug("dropped-kv-keeps-prefix", "scheduler/scheduler.cc",
        "  found->second.DropPrefixes();\n}",
        "}",
        "prefixes are shared on a memory node that has forgotten them"),
    Bug("chunk-of-another-batch", "scheduler/scheduler.cc",
        "    if (sequence->batch == batch && !sequence->samples)",
        "    if (!sequence->samples)",
        "a chunk of a prompt that another batch still computes counts as computed"),
    Bug("prompt-moves", "scheduler/next_step.cc",
        "    if (sequence.prefilling || (active && here.num_running <= to->num_running + 1)) continue;",
        "    if (active && here.num_running <= to->num_running + 1) continue;",
        "a sequence moves to another batch, and so to other compute nodes, in the middle of its prompt"),
    Bug("slots-in-flight-are-freed", "scheduler/scheduler.cc",
        "  } else if (InFlight(sequence) && batches.size() > 1) {",
        "  } else if (InFlight(sequence) && batches.empty()) {",
        "the slots of a sequence are given back while a step reads them"),
    Bug("lost-pool-is-freed-into", "scheduler/scheduler.cc",
        "    for (Leaving& leaving : batch.leaving) std::erase_if(leaving.extents, on_it);",
        "    (void)batch;",
        "slots are given back to the pool of a node that is gone"),
    Bug("retry-takes-a-slot", "scheduler/next_step.cc",
        "  if (sequence.num_slots() == sequence.num_tokens()) return Growth::kGrown;\n",
        "",
        "a row that is computed once more takes a second slot"),
    Bug("resume-does-nothing", "scheduler/scheduler.cc",
        "  if (found != state_->pools.end()) found->second.suspended = false;\n",
        "  (void)found;\n",
        "a node that is in time again gets no work"),
    Bug("late-prefill-goes-on", "scheduler/scheduler.cc",
        "    if (sequence->prefilling) unfinished.push_back(sequence);",
        "    if (sequence->prefilling && sequence->samples) unfinished.push_back(sequence);",
        "a prompt goes on that has lost a chunk to a node that was late"),
    Bug("sits-out-never", "scheduler/scheduler_state.h",
        "                               [](const Extent& extent) { return extent.pool->suspended; });",
        "                               [](const Extent& extent) { return extent.pool == nullptr; });",
        "sequences of a late node get work all the same"),
    Bug("starts-on-late-node", "scheduler/next_step.cc",
        "    if (pool.suspended) continue;\n    const int64_t length",
        "    const int64_t length",
        "sequences that share a prefix start on a node that is late"),
    Bug("retry-is-not-marked", "scheduler/next_step.cc",
        "                         .again = again});",
        "                         .again = false && again});",
        "memory nodes are not told that a row is computed once more"),
    Bug("retry-is-not-cut", "memory_node/sequence_slots.cc",
        "    if (row.again) cache_.Truncate(row.sequence, row.num_stored);\n",
        "",
        "a row that is computed once more does not replace the one before"),
    Bug("unproven-is-offered", "scheduler/scheduler.cc",
        "    const bool proves = !sequence.prefilling || sequence.num_shared > 0;",
        "    const bool proves = true;",
        "a prompt's KV is offered to others before a step has read it"),
    Bug("idle-slot-counts-twice", "scheduler/kv_pool.cc",
        "    if (allocator_.num_refs(slot) == 1) --num_idle_;\n",
        "",
        "evicted slots still count as idle"),
    Bug("heard-while-reconnecting", "manager/engine_core.cc",
        "  if (event.generation != generation_ || executor_ == nullptr) return;",
        "  if (event.generation != generation_) return;",
        "what nodes said before is believed while they are being connected anew"),
    Bug("aborted-runs-on", "manager/engine_core.cc",
        "  if (requests_.Finish(sequence, std::move(event), now, decisions_.deliveries))\n    scheduler().Finish(sequence);",
        "  (void)requests_.Finish(sequence, std::move(event), now, decisions_.deliveries);",
        "the scheduler does not hear that a client went away"),
    Bug("suspension-outlives-node", "manager/engine_outage.cc",
        "  suspensions_.Clear();\n",
        "",
        "nodes count as late when they have been connected anew"),
    Bug("missing-counts-as-kept", "manager/engine_outage.cc",
        "    for (const SequenceId sequence : kv.missing) scheduler().Again(sequence);\n",
        "    (void)kv;\n",
        "sequences go on of which a memory node has not kept all KV"),
    Bug("taken-back-stays-lost", "manager/node_outages.cc",
        "  if (lost_.erase(node) == 0) return;",
        "  if (!lost_.contains(node)) return;",
        "a node that serves again still counts as lost"),
    Bug("half-group-resumes", "manager/engine_outage.cc",
        "  if (std::ranges::any_of(suspensions_.nodes(), of_group)) return;\n",
        "  (void)of_group;\n",
        "a group of nodes gets work when one of them is in time again and another is not"),
    Bug("lost-node-is-not-left", "manager/cluster_executor.cc",
        "  connections_->Leave(lost);\n",
        "",
        "the manager keeps its connection to a memory node that a compute node has lost"),
    Bug("sampled-from-zero", "manager/open_requests.cc",
        "  announced.num_prompt_tokens = static_cast<int32_t>(spec.prompt.size());",
        "  announced.num_prompt_tokens = static_cast<int32_t>(announced.tokens.size());",
        "when a sequence starts again its generated tokens count as prompt, so random choices begin anew"),
    Bug("repeated-notification", "wire/lanes.cc",
        "  if (full || number != Notification::Next(side.announced)) return Note::kStale;",
        "  if (full) return Note::kStale;",
        "a notification that comes twice counts as the next message"),
    Bug("repeated-push-done", "wire/lanes.cc",
        "    if (!side.pushing || number != side.sent) return Note::kStale;",
        "    if (!side.pushing) return Note::kStale;",
        "a push counts as stored when the one before it was"),
    Bug("checksum-is-ignored", "wire/wire_format.cc",
        "  if (has_checksum &&\n",
        "  if (has_checksum && !payload_checksum &&\n",
        "a message with a flipped bit is believed"),
    Bug("ends-other-batches", "memory_node/ordered_steps.cc",
        "    const bool over = it->second.batch == now->second.batch && it->second.rows_to_come <= 0;",
        "    const bool over = it->second.rows_to_come <= 0;",
        "a message of one batch ends the steps of all others"),
    Bug("cut-counts-as-written", "kernels/kv_tables.cc",
        "  for (int64_t& written : table.written) written = std::min(written, num_tokens);\n",
        "",
        "tokens that a memory node has cut off count as written when others take their places"),
    Bug("keeps-what-nobody-holds", "memory_node/memory_session.cc",
        "  session->missing_ = session->service_->Keep(request.held);\n",
        "",
        "a memory node keeps KV that the manager has given up, and does not say what it lacks"),
    Bug("session-outlives-manager", "memory_node/memory_node.cc",
        "                             if (SessionOf(lost) != nullptr) EndSession(why.message());",
        "                             (void)lost, (void)why;",
        "a memory node waits for ever for a manager whose connection is gone"),
    Bug("suspended-loss-is-not-told", "compute_node/memory_peers.cc",
        "      if (!std::exchange(peer.told, true))\n",
        "      if (!std::exchange(peer.told, true) && !connection.lost())\n",
        "a compute node does not tell that it has lost a memory node that it had suspended"),
    Bug("lost-prompt-goes-on", "scheduler/scheduler.cc",
        "  for (Sequence* sequence : std::vector(state_->prefilling)) {",
        "  for (Sequence* sequence : std::vector<Sequence*>()) {",
        "a prompt goes on where it was although the compute nodes were connected anew"),
    Bug("stored-too-early", "compute_node/remote_step.h",
        "      return !peer.lost() && !late && !rows->prefill().empty() && peer.pushing();",
        "      return peer.lost() && peer.pushing();",
        "a step ends before memory nodes have stored its prompts"),
    Bug("late-row-is-sampled", "compute_node/step_outcome.h",
        "    return !failed_.contains(sequence) && !late_.contains(sequence);",
        "    return !failed_.contains(sequence);",
        "a token is chosen for a row whose memory node is late"),
    Bug("failed-row-is-sampled", "compute_node/step_outcome.h",
        "    return !failed_.contains(sequence) && !late_.contains(sequence);",
        "    return !late_.contains(sequence);",
        "a token is chosen for a row that has failed"),
    Bug("loss-stays-behind", "compute_node/step_outcome.cc",
        "  result_ = std::move(so_far);\n",
        "  (result_ = std::move(so_far)).lost_nodes.clear();\n",
        "a compute node does not pass on which memory nodes the one before it has lost"),
    Bug("rank-loss-is-dropped", "compute_node/step_outcome.cc",
        "  result_.lost_nodes.insert(result_.lost_nodes.end(), rank.lost_nodes.begin(),\n"
        "                            rank.lost_nodes.end());\n",
        "",
        "rank 0 does not tell which memory nodes another rank has lost"),
    Bug("resumed-while-owing", "compute_node/memory_peer.cc",
        "  if (lost_ || owed_ != 0 || pushing() || lanes_->unsent()) return false;",
        "  if (lost_ || pushing() || lanes_->unsent()) return false;",
        "a late node counts as in time again before its late reply has come"),
    Bug("left-out-is-sent", "compute_node/remote_step.cc",
        "    if (!share.peer.lost() && !share.late && !share.rows->decode().empty()) share.path->Send();",
        "    if (!share.peer.lost() && !share.rows->decode().empty()) share.path->Send();",
        "decode messages are sent to a late node before it has answered the last ones"),
    Bug("prompt-kv-is-kept", "compute_node/step_runner.cc",
        "  for (const SequenceId released : order.released) session_.attention->Release(released);\n",
        "",
        "a compute node keeps the KV of a prompt that starts again"),
    Bug("goes-on-with-too-few-tokens", "scheduler/scheduler.cc",
        "      num_computed >= num_prompt_tokens && extent.num_tokens() >= num_computed &&",
        "      num_computed >= num_prompt_tokens &&",
        "a sequence goes on with what another manager left of it though K and V of some of its tokens are not there"),
    Bug("left-slots-are-not-told", "scheduler/next_step.cc",
        "    if (std::exchange(sequence.untold_left, false)) {",
        "    if (std::exchange(sequence.untold_left, false) && false) {",
        "the memory node is not told which slots hold the tokens of a sequence that goes on"),
    Bug("left-tables-stay", "memory_node/memory_session.cc",
        "  left_ = {};\n  service_->Keep({});",
        "  left_ = {};",
        "a memory node keeps the tables of a manager that is gone, whose numbers the next one gives anew"),
    Bug("left-is-never-dropped", "manager/engine_outage.cc",
        "  scheduler().DropLeft();",
        "",
        "what nobody asks for of a manager that is gone keeps its slots for ever"),
    Bug("node-behind-asks-a-suspended-one", "compute_node/context_relay.cc",
        "  step.attention().transfer()->GoOnWithout(suspended);\n",
        "",
        "a step goes on without a suspended memory node, and the next compute node asks that node all the same"),
    Bug("rows-of-another-rank-are-sampled", "compute_node/step_outcome.cc",
        "  late_.insert(rank.late.begin(), rank.late.end());\n",
        "",
        "a token is chosen though another rank had no attention for its row"),
    Bug("old-result-suspends-again", "manager/suspensions.cc",
        "(number == latest.number && latest.over)",
        "false",
        "a result that had gone on without a memory node suspends it though it has answered since, and nobody resumes it"),
    Bug("result-does-not-suspend", "manager/cluster_executor.cc",
        "  for (const SuspendedNode& told : event.result.suspended) {",
        "  for (const SuspendedNode& told : std::vector<SuspendedNode>()) {",
        "the next step asks a memory node that the last one has gone on without, because its compute node is heard later")
]


def times_there(bug, root):
    with open(os.path.join(root, bug.file), encoding="utf-8") as file:
        return file.read().count(bug.old)


def replace(path, old, new):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(old, new))


def copy_tree(to):
    """Files that are as they were in the copy stay untouched, so that only what changed is compiled; those that are no more go."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    listed = [name for name in listed if name]
    os.makedirs(to, exist_ok=True)
    manifest = os.path.join(to, ".copied")
    if os.path.isfile(manifest):
        with open(manifest, encoding="utf-8") as file:
            gone = set(file.read().split("\0")) - set(listed)
        for name in gone:
            if os.path.isfile(os.path.join(to, name)):
                os.remove(os.path.join(to, name))
    with open(manifest, "w", encoding="utf-8") as file:
        file.write("\0".join(listed))
    for name in listed:
        source, target = os.path.join(ROOT, name), os.path.join(to, name)
        if not os.path.isfile(source):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(source, "rb") as file:
            content = file.read()
        if os.path.isfile(target):
            with open(target, "rb") as file:
                if file.read() == content:
                    continue
        shutil.copyfile(source, target)
        shutil.copymode(source, target)


def compile_alone(files, tree):
    """The files that get bugs are compiled one by one, and not together with others of their folder."""
    with open(os.path.join(tree, "CMakeLists.txt"), "a", encoding="utf-8") as lists:
        for file in files:
            if file.endswith(".cc"):
                lists.write(f"set_source_files_properties(${{CMAKE_SOURCE_DIR}}/{file} TARGET_DIRECTORY lamina_{file.split('/')[0]} "
                            "PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)\n")


def build(tree, jobs):
    """What went wrong, "" for nothing."""
    if not os.path.isfile(os.path.join(tree, "build/release/build.ninja")):
        made = subprocess.run(["cmake", "--preset", "release"], cwd=tree, capture_output=True, text=True)
        if made.returncode != 0:
            return made.stdout + made.stderr
    made = subprocess.run(["ninja", "-C", "build/release", f"-j{jobs}", "sim_cluster"], cwd=tree, capture_output=True, text=True)
    return "" if made.returncode == 0 else made.stdout + made.stderr


def end_of(code, errors):
    """How a process ended that told of no failed seed."""
    text = re.search(r"simulated seed (\d+)", errors)
    seed = int(text.group(1)) if text else None
    if code == -signal.SIGALRM:
        return seed, "the run does not end"
    check = [line for line in errors.splitlines() if "simulated seed" not in line]
    name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    return seed, f"the process is aborted ({name}){': ' + check[-1].strip() if check else ''}"


def simulate(program, seeds):
    """(seed or None, how it was found or "" if it was not, seconds)"""
    start = time.monotonic()
    try:
        done = subprocess.run([program, "--seeds", f"1..{seeds}", "--stop-at-first"], capture_output=True, text=True, errors="replace",
                              timeout=LONGEST_RUN_SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"the seeds took more than {LONGEST_RUN_SECONDS} s", time.monotonic() - start
    seconds = time.monotonic() - start
    failed = re.search(r"^seed (\d+) FAILED (.*)$", done.stdout, re.MULTILINE)
    if failed:
        return int(failed.group(1)), failed.group(2), seconds
    return (None, "", seconds) if done.returncode == 0 else (*end_of(done.returncode, done.stderr), seconds)


def look_for(bug, program, seeds):
    """Returns whether the bug was found, and prints it."""
    seed, how, seconds = simulate(program, seeds)
    os.remove(program)
    if how:
        at = f"seed {seed}" if seed is not None else "no seed is known"
        print(f"{bug.name:<36} {at:<12} {seconds:>5.0f} s   {how[:150]}", flush=True)
    else:
        print(f"{bug.name:<36} NOT FOUND    {seconds:>5.0f} s   by seeds 1..{seeds}: {bug.means}", flush=True)
    return bool(how)


def plant(bug, tree, jobs):
    """Builds the program with the bug in it. Returns its path, "" if that is not possible."""
    if times_there(bug, tree) != 1:
        print(f"{bug.name:<36} NOT PLANTED  {bug.file} has its text {times_there(bug, tree)} times", flush=True)
        return ""
    path = os.path.join(tree, bug.file)
    with open(path, encoding="utf-8") as file:
        before = file.read()
    try:
        replace(path, bug.old, bug.new)
        failure = build(tree, jobs)
        if failure:
            print(f"{bug.name:<36} NOT PLANTED  it does not compile:\n{failure[-2000:]}", flush=True)
            return ""
        return shutil.copy(os.path.join(tree, "build/release/bin/sim_cluster"), os.path.join(tree, f"build/sim_cluster.{bug.name}"))
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(before)


def check_without_bug(tree, jobs):
    failure = build(tree, jobs)
    if failure:
        sys.exit(f"the tree does not compile:\n{failure[-4000:]}")
    seed, how, _ = simulate(os.path.join(tree, "build/release/bin/sim_cluster"), SEEDS_WITHOUT_BUG)
    if how:
        sys.exit(f"without a planted bug seed {seed} fails: {how}")


def plant_all(bugs, tree, options):
    """Returns how many were not found."""
    copy_tree(tree)
    compile_alone(sorted({bug.file for bug in BUGS}), tree)
    check_without_bug(tree, options.jobs)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as simulations:
        looks = []
        for bug in bugs:
            program = plant(bug, tree, options.jobs)
            if program:
                looks.append(simulations.submit(look_for, bug, program, options.seeds))
        return len(bugs) - sum(look.result() for look in looks)


def print_list(bugs):
    """Returns how many cannot be planted."""
    num_wrong = 0
    for bug in bugs:
        times = times_there(bug, ROOT)
        num_wrong += times != 1
        print(f"{bug.name:<36} {bug.file}: {bug.means}{'' if times == 1 else f'  NOT PLANTED: its text is there {times} times'}")
    return num_wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--build-dir")
    options = parser.parse_args()
    unknown = set(options.only) - {bug.name for bug in BUGS}
    if unknown:
        parser.error(f"there is no bug {', '.join(sorted(unknown))}")
    bugs = [bug for bug in BUGS if not options.only or bug.name in options.only]
    if options.list:
        sys.exit(1 if print_list(bugs) else 0)
    start = time.monotonic()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))  # also of what it starts
    with tempfile.TemporaryDirectory(prefix="planted_bugs.") as temporary:
        tree = os.path.abspath(options.build_dir or temporary)
        num_lost = plant_all(bugs, tree, options)
    print(f"{len(bugs) - num_lost} of {len(bugs)} bugs found, in {time.monotonic() - start:.0f} s")
    sys.exit(1 if num_lost else 0)


if __name__ == "__main__":
    main()
