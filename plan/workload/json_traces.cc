// Readers of the traces that are JSON: Mooncake's, and the texts of ShareGPT and Alpaca.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/input_file.h"
#include "plan/workload/trace_readers.h"

namespace lamina {
namespace {

using nlohmann::json;

constexpr int64_t kMooncakeBlockTokens = 512;
// Blocks of all requests together, 8 bytes each.
constexpr int64_t kMaxBlocks = 200'000'000;
// ShareGPT has 0.7 GB, and takes several times as much memory when it is parsed.
constexpr size_t kMaxListBytes = size_t{1} << 30;

std::optional<int64_t> CountField(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer() || *found < 0 ||
      *found > kMaxRequestTokens)
    return std::nullopt;
  return found->get<int64_t>();
}

// Nothing, and in `missing` what was expected, if the object is no request.
std::optional<TraceRequest> MooncakeRequest(const json& object, std::string& missing) {
  TraceRequest request;
  const auto time = object.find("timestamp");
  const std::optional<int64_t> input = CountField(object, "input_length"),
                               output = CountField(object, "output_length");
  if (time == object.end() || !time->is_number() || *time < 0)
    missing = "'timestamp', in milliseconds";
  if (!input) missing = "'input_length', a number of tokens";
  if (!output) missing = "'output_length', a number of tokens";
  if (const auto ids = object.find("hash_ids"); ids != object.end()) {
    const bool integers =
        ids->is_array() && std::all_of(ids->begin(), ids->end(),
                                       [](const json& id) { return id.is_number_integer(); });
    if (!integers) missing = "'hash_ids', a list of integers";
    if (integers) request.prefix_blocks = ids->get<std::vector<int64_t>>();
  }
  if (!missing.empty()) return std::nullopt;
  const auto num_blocks = static_cast<int64_t>(request.prefix_blocks.size());
  if (num_blocks > 0 && num_blocks != (*input + kMooncakeBlockTokens - 1) / kMooncakeBlockTokens) {
    missing = fmt::format("one of the 'hash_ids' for every {} of {} tokens, not {}",
                          kMooncakeBlockTokens, *input, num_blocks);
    return std::nullopt;
  }
  request.arrival_seconds = time->get<double>() / 1e3;
  request.input_tokens = *input;
  request.output_tokens = *output;
  return request;
}

// A file that is one JSON list. Keeps the text, to say at which line something is wrong with an
// entry.
class JsonList {
 public:
  static Result<JsonList> Read(const std::string& path) {
    JsonList list;
    list.path_ = path;
    LAMINA_ASSIGN_OR_RETURN(list.text_, ReadInput(path, kMaxListBytes));
    try {
      list.items_ = json::parse(list.text_);
    } catch (const json::parse_error& error) {
      return list.Fail(error.byte, "this is not JSON: " + std::string(error.what()));
    } catch (const json::exception& error) {
      // A number that is too large. Nothing says where it stands.
      return InvalidArgument(path + ": this is not JSON: " + error.what());
    }
    if (!list.items_.is_array()) return list.Fail(0, "expected a JSON list");
    return list;
  }

  const json& items() const { return items_; }

  Status FailAt(size_t item, const std::string& what) const {
    return Fail(BeginOf(item, text_), fmt::format("entry {}: {}", item, what));
  }

 private:
  Status Fail(size_t byte, const std::string& what) const {
    const auto end = text_.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text_.size()));
    return InvalidArgument(
        fmt::format("{}:{}: {}", path_, 1 + std::count(text_.begin(), end, '\n'), what));
  }

  // Where an entry begins in the text: behind so many commas of the outermost list.
  static size_t BeginOf(size_t item, const std::string& text) {
    int depth = 0;
    bool in_string = false;
    size_t byte = 0;
    for (; byte < text.size(); ++byte) {
      const char c = text[byte];
      if (in_string) {
        byte += c == '\\';
        in_string = c != '"';
        continue;
      }
      in_string = c == '"';
      depth += (c == '[' || c == '{') - (c == ']' || c == '}');
      if (depth != 1 || (c != '[' && c != ',')) continue;
      if (c == ',' && --item > 0) continue;
      if (item == 0) break;
    }
    return text.find_first_not_of(" \t\r\n", byte + 1);
  }

  std::string path_, text_;
  json items_;
};

std::string TextField(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The lengths that `vllm bench serve` keeps of ShareGPT.
bool IsShareGptLength(int64_t input, int64_t output) {
  return input >= 4 && output >= 4 && input <= 1024 && input + output <= 2048;
}

}  // namespace

Status ReadMooncake(LineReader& lines, RequestTrace& trace) {
  trace.has_arrivals = true;
  trace.counted_by = "the trace";
  int64_t num_blocks = 0;
  for (std::string line; lines.Next(line);) {
    const json object = json::parse(line, nullptr, false);
    if (!object.is_object()) return lines.Fail("this is not a JSON object");
    std::string missing;
    std::optional<TraceRequest> request = MooncakeRequest(object, missing);
    if (!request) return lines.Fail("expected " + missing);
    LAMINA_RETURN_IF_ERROR(CheckArrival(lines, request->arrival_seconds, trace));
    if (!request->prefix_blocks.empty()) trace.block_tokens = kMooncakeBlockTokens;
    num_blocks += std::ssize(request->prefix_blocks);
    if (num_blocks > kMaxBlocks)
      return lines.Fail(fmt::format(
          "there are more than {} 'hash_ids', which do not fit into memory", kMaxBlocks));
    LAMINA_RETURN_IF_ERROR(CheckRoom(lines, trace));
    AddOrLeaveOut(*std::move(request), trace);
  }
  return lines.status();
}

Status ReadShareGpt(const std::string& path, const TokenCounter& counter, RequestTrace& trace) {
  trace.counted_by = counter.name;
  LAMINA_ASSIGN_OR_RETURN(const JsonList list, JsonList::Read(path));
  for (size_t i = 0; i < list.items().size(); ++i) {
    const json& item = list.items()[i];
    const auto turns = item.is_object() ? item.find("conversations") : item.end();
    if (!item.is_object() || turns == item.end() || !turns->is_array())
      return list.FailAt(i, "expected an object with a list of 'conversations'");
    if (turns->size() < 2) {
      ++trace.num_left_out;
      continue;
    }
    TraceRequest request;
    request.prompt = TextField((*turns)[0], "value");
    const std::string answer = TextField((*turns)[1], "value");
    request.input_tokens = request.prompt.empty() ? 0 : counter.count(request.prompt);
    request.output_tokens = answer.empty() ? 0 : counter.count(answer);
    if (IsShareGptLength(request.input_tokens, request.output_tokens)) {
      trace.requests.push_back(std::move(request));
    } else {
      ++trace.num_left_out;
    }
  }
  return OkStatus();
}

Status ReadAlpaca(const std::string& path, const TokenCounter& counter, RequestTrace& trace) {
  trace.counted_by = counter.name;
  LAMINA_ASSIGN_OR_RETURN(const JsonList list, JsonList::Read(path));
  for (size_t i = 0; i < list.items().size(); ++i) {
    const json& item = list.items()[i];
    TraceRequest request;
    request.prompt = TextField(item, "instruction");
    const std::string input = TextField(item, "input"), answer = TextField(item, "output");
    if (request.prompt.empty()) return list.FailAt(i, "expected an object with an 'instruction'");
    if (!input.empty()) request.prompt += "\n" + input;
    request.input_tokens = counter.count(request.prompt);
    request.output_tokens = answer.empty() ? 0 : counter.count(answer);
    AddOrLeaveOut(std::move(request), trace);
  }
  return OkStatus();
}

}  // namespace lamina
