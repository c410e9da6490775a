#include "api/protocols/llama_request.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "api/protocols/llama_answer.h"

namespace lamina {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Reads one request. The first error is kept, and ends what is under way.
class LlamaReader {
 public:
  LlamaReader(ForeignBody body, const ServedModel& model, Translation& out)
      : body_(body), model_(model), completion_(out.body), out_(out), reader_(body.fields) {
    out_.kind = ApiKind::kCompletion;
  }

  std::optional<ApiError> ReadCompletion() {
    const json* const prompt = reader_.Find("prompt");
    const bool is_tokens = prompt != nullptr && prompt->is_array() &&
                           std::ranges::all_of(*prompt, &json::is_number_integer);
    if (prompt == nullptr) {
      reader_.Fail("prompt", "'prompt' is missing");
    } else if (!prompt->is_string() && !is_tokens) {
      reader_.Fail("prompt", "'prompt' must be one text, or one list of token ids");
    } else {
      completion_["prompt"] = std::move(body_.ordered["prompt"]);
    }
    for (const char* name : {"input_prefix", "input_suffix", "input_extra"})
      reader_.Refuse(name, "use /infill");
    return Finish();
  }

  std::optional<ApiError> ReadInfill() {
    if (!model_.infill)
      reader_.Fail("input_suffix",
                   "this model's tokenizer has no tokens for text that is to be filled in between "
                   "two others");
    std::string before, prompt, behind;
    ReadExtra(before);
    for (const auto& [name, text] : {std::pair("input_prefix", &before), {"prompt", &prompt}}) {
      std::string read;
      reader_.Read(name, read);
      *text += read;
    }
    reader_.Read("input_suffix", behind);
    // What stands before the cursor in its line.
    completion_["prompt"] = before + prompt;
    if (!behind.empty()) completion_["suffix"] = std::move(behind);
    return Finish();
  }

 private:
  // Text of other files, which stands before all else.
  void ReadExtra(std::string& text) {
    const json* const extra = reader_.Find("input_extra");
    if (extra == nullptr) return;
    const bool is_list = extra->is_array();
    for (size_t i = 0; is_list && i < extra->size(); ++i) {
      const json& file = (*extra)[i];
      const json content = file.is_object() ? file.value("text", json()) : json();
      const json name = file.is_object() ? file.value("filename", json("")) : json();
      if (!content.is_string() || !name.is_string())
        return reader_.Fail(
            "input_extra", At("input_extra", i) + " must have a 'text', and may have a 'filename'");
      text += "\n\n--- " + (name == "" ? "snippet" : name.get<std::string>()) + " ---\n\n" +
              content.get<std::string>();
    }
    if (!is_list)
      reader_.Fail("input_extra", "'input_extra' must be a list, not " + JsonTypeName(*extra));
  }

  std::optional<ApiError> Finish() {
    std::string name;
    reader_.Read("model", name);
    completion_["model"] = name.empty() ? model_.name : std::move(name);
    bool stream = false;
    reader_.Read("stream", stream);
    completion_["stream"] = stream;
    int64_t num_predict = -1;
    reader_.ReadInteger("n_predict", -2, INT64_MAX, num_predict);
    if (num_predict > 0) completion_["max_tokens"] = num_predict;
    ReadSampling();
    ReadConstraints();
    ReadLogitBias();
    RefuseRest();
    FailUnknown(reader_, "");
    if (reader_.error()) return reader_.error();
    out_.form = NewLlamaAnswer(model_.name);
    // Clients that ask for nothing want the prompt to be computed for the next request.
    if (num_predict == 0)
      out_.answer = OutboundResponse{200, "application/json", LlamaNothing(model_.name), {}};
    return std::nullopt;
  }

  void ReadSampling() {
    for (const char* name : {"temperature", "top_k", "top_p", "min_p", "presence_penalty",
                             "frequency_penalty", "stop", "ignore_eos"})
      MoveField(reader_, body_.ordered, name, completion_, name);
    MoveField(reader_, body_.ordered, "repeat_penalty", completion_, "repetition_penalty");
    // A top_k of 0 is all tokens there.
    if (completion_.contains("top_k") && completion_["top_k"] == 0) completion_.erase("top_k");
    int64_t seed = -1;
    reader_.ReadInteger("seed", INT64_MIN, INT64_MAX, seed);
    if (seed != -1 && seed != UINT32_MAX) completion_["seed"] = seed;
    ReadSamplers();
  }

  // Only what is listed is applied, in an order that changes nothing here.
  void ReadSamplers() {
    const json* const samplers = reader_.Find("samplers");
    if (samplers == nullptr) return;
    const bool is_list = samplers->is_array() && std::ranges::all_of(*samplers, &json::is_string);
    if (!is_list) return reader_.Fail("samplers", "'samplers' must be a list of names");
    const auto lists = [&](const char* name) {
      return std::ranges::find(*samplers, json(name)) != samplers->end();
    };
    if (!lists("temperature")) completion_["temperature"] = 1;
    if (!lists("top_k")) completion_["top_k"] = -1;
    if (!lists("top_p")) completion_["top_p"] = 1;
    if (!lists("min_p")) completion_["min_p"] = 0;
    if (lists("penalties")) return;
    for (const char* name : {"presence_penalty", "frequency_penalty"}) completion_[name] = 0;
    completion_["repetition_penalty"] = 1;
  }

  void ReadConstraints() {
    const json* const grammar = reader_.Find("grammar");
    if (grammar != nullptr && *grammar != "") completion_["grammar"] = *grammar;
    const json* const schema = reader_.Find("json_schema");
    if (schema == nullptr) return;
    if (!schema->is_object())
      return reader_.Fail("json_schema", "'json_schema' must be a JSON schema");
    completion_["response_format"] = {
        {"type", "json_schema"},
        {"json_schema", {{"schema", std::move(body_.ordered["json_schema"])}}}};
  }

  // [[token, bias], ...] or {"token": bias}; false instead of a number means never.
  void ReadLogitBias() {
    const json* const given = reader_.Find("logit_bias");
    if (given == nullptr || given->empty()) return;
    ordered_json bias = ordered_json::object();
    const auto add = [&](const std::string& token, const json& value) {
      bias[token] = value == false ? json(-100) : value;
    };
    bool is_right = given->is_array() || given->is_object();
    if (given->is_object()) {
      for (const auto& [token, value] : given->items()) add(token, value);
    } else if (given->is_array()) {
      for (const json& pair : *given) {
        is_right = is_right && pair.is_array() && pair.size() == 2 && pair[0].is_number_integer();
        if (is_right) add(pair[0].dump(), pair[1]);
      }
    }
    if (!is_right)
      return reader_.Fail("logit_bias", "'logit_bias' must be a list of [token id, bias]");
    completion_["logit_bias"] = std::move(bias);
  }

  void RefuseRest() {
    RefuseOther(reader_, "repeat_last_n", -1, "'repeat_penalty' looks at all tokens");
    RefuseOther(reader_, "typical_p", 1, "use 'min_p' or 'top_p'");
    RefuseOther(reader_, "top_n_sigma", -1, "use 'min_p' or 'top_p'");
    for (const char* name : {"dynatemp_range", "mirostat", "xtc_probability", "dry_multiplier"})
      RefuseOther(reader_, name, 0, "use 'temperature', 'min_p' or 'top_p'");
    RefuseOther(reader_, "n_probs", 0, "use /v1/completions with 'logprobs'");
    RefuseOther(reader_, "n_indent", 0, "use 'grammar'");
    RefuseOther(reader_, "n_cmpl", 1, "use /v1/completions with 'n'");
    reader_.Refuse("return_tokens", "use /v1/completions with 'return_token_ids'");
    reader_.Refuse("lora", "there are no adapters");
    reader_.Refuse("image_data", "this server's models read text");
    // What tunes the samplers above, where a request goes and what is told beside the text; time is
    // limited by 'n_predict' and by ending the request.
    for (const char* name : {"dynatemp_exponent",
                             "mirostat_tau",
                             "mirostat_eta",
                             "xtc_threshold",
                             "dry_base",
                             "dry_allowed_length",
                             "dry_penalty_last_n",
                             "dry_sequence_breakers",
                             "min_keep",
                             "n_keep",
                             "n_discard",
                             "id_slot",
                             "cache_prompt",
                             "n_cache_reuse",
                             "t_max_prompt_ms",
                             "t_max_predict_ms",
                             "timings_per_token",
                             "return_progress",
                             "post_sampling_probs",
                             "response_fields"})
      reader_.Ignore(name);
  }

  ForeignBody body_;
  const ServedModel& model_;
  ordered_json& completion_;
  Translation& out_;
  FieldReader reader_;
};

}  // namespace

std::optional<ApiError> TranslateLlamaCompletion(ForeignBody body, const ServedModel& model,
                                                 Translation& out) {
  return LlamaReader(body, model, out).ReadCompletion();
}

std::optional<ApiError> TranslateLlamaInfill(ForeignBody body, const ServedModel& model,
                                             Translation& out) {
  return LlamaReader(body, model, out).ReadInfill();
}

}  // namespace lamina
