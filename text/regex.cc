#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "text/oniguruma_pattern.h"
#include "text/utf8.h"

namespace lamina {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;   // the longest in use have about 1 KiB
constexpr uint32_t kMatchLimit = 10'000'000;    // steps from one place: a tenth of a second
constexpr uint32_t kHeapLimitKib = 256u << 10;  // without JIT: a megabyte of text that is one match

template <typename T, void (*Free)(T*)>
struct Freed {
  void operator()(T* pointer) const { Free(pointer); }
};
template <typename T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, Freed<T, Free>>;

// Places that are tried before the first look at the time; then twice as many, and so on.
constexpr size_t kFirstStarts = 16;

using MatchContext = Owned<pcre2_match_context, pcre2_match_context_free>;
using MatchData = Owned<pcre2_match_data, pcre2_match_data_free>;

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Code {
  Owned<pcre2_code, pcre2_code_free> compiled;
  MatchContext limits;

  // Whether there is a match that begins at `from` or behind it, but not behind `last`. Its offset
  // pair is in `match` then.
  Result<bool> Match(std::string_view text, size_t from, size_t last, pcre2_match_context* context,
                     pcre2_match_data* match) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    pcre2_set_offset_limit(context, last);
    int rc =
        pcre2_match(compiled.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, match, context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(compiled.get(), subject, text.size(), from,
                       PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, context);
    }
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) return rc >= 0;
    return OutOfSpace("a regular expression of the tokenizer gives up on this text: " +
                      ErrorText(rc));
  }

  // The next match from `from` on. Looks at the time again and again, less often the longer it
  // takes.
  Result<bool> Find(std::string_view text, size_t from, const TimeBudget& budget,
                    pcre2_match_context* context, pcre2_match_data* match) const {
    for (size_t starts = kFirstStarts;; starts *= 2) {
      LAMINA_RETURN_IF_ERROR(budget.Check());
      const size_t last = from + std::min(starts, text.size() - from);
      LAMINA_ASSIGN_OR_RETURN(const bool found, Match(text, from, last, context, match));
      if (found || last == text.size()) return found;
      from = last + 1;
      // To the next character.
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
    }
  }
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}

Regex::~Regex() = default;

Result<std::unique_ptr<Regex>> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return InvalidArgument("the regular expression has " + std::to_string(pattern.size()) +
                           " bytes, expected at most " + std::to_string(kMaxPatternBytes));
  }
  LAMINA_ASSIGN_OR_RETURN(const std::string translated, TranslateOniguruma(pattern));
  return CompilePcre(translated, 0);
}

Result<std::unique_ptr<Regex>> Regex::Literal(std::string_view text) {
  if (text.empty()) return InvalidArgument("the text to look for is empty");
  return CompilePcre(std::string(text), PCRE2_LITERAL);
}

Result<std::unique_ptr<Regex>> Regex::CompilePcre(const std::string& pattern,
                                                  uint32_t extra_options) {
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const uint32_t options =
      PCRE2_USE_OFFSET_LIMIT |
      (extra_options != 0 ? PCRE2_UTF | extra_options
                          : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     options, &error, &offset, context.get()));
  if (code->compiled == nullptr) {
    return InvalidArgument("the regular expression cannot be read: " + ErrorText(error) +
                           ", near \"" + pattern.substr(0, std::min<size_t>(offset, 200)) + "\"");
  }
  // Where there is no JIT, matching takes longer.
  pcre2_jit_compile(code->compiled.get(), PCRE2_JIT_COMPLETE);
  code->limits.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(code->limits.get(), kMatchLimit);
  pcre2_set_heap_limit(code->limits.get(), kHeapLimitKib);
  return std::unique_ptr<Regex>(new Regex(std::move(code)));
}

Status Regex::ForEachMatch(std::string_view text, const TimeBudget& budget,
                           const std::function<void(size_t, size_t)>& visit) const {
  const MatchData match(pcre2_match_data_create_from_pattern(code_->compiled.get(), nullptr));
  const MatchContext context(pcre2_match_context_copy(code_->limits.get()));
  size_t from = 0;
  size_t last_end = std::string_view::npos;
  while (from <= text.size()) {
    LAMINA_ASSIGN_OR_RETURN(const bool found,
                            code_->Find(text, from, budget, context.get(), match.get()));
    if (!found) break;
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match.get());
    const size_t begin = offsets[0], end = offsets[1];
    if (begin < from || end < begin)
      return Unimplemented("a regular expression of the tokenizer moves a match's beginning (\\K)");
    if (begin < end || begin != last_end) visit(begin, end);
    last_end = end;
    from = end;
    if (begin < end) continue;
    size_t length = 1;
    if (from < text.size()) ClassifyUtf8(text.substr(from), &length);
    from += length;
  }
  return OkStatus();
}

Result<std::string> Regex::ReplaceAll(std::string_view text, std::string_view with,
                                      size_t max_bytes, const TimeBudget& budget) const {
  std::string replaced;
  size_t done = 0;
  bool fits = true;
  const auto append = [&](std::string_view part) {
    fits = fits && part.size() <= max_bytes - replaced.size();
    if (fits) replaced += part;
  };
  LAMINA_RETURN_IF_ERROR(ForEachMatch(text, budget, [&](size_t begin, size_t end) {
    append(text.substr(done, begin - done));
    append(with);
    done = end;
  }));
  append(text.substr(done));
  if (fits) return replaced;
  return OutOfSpace("a Replace of the tokenizer makes more than " + std::to_string(max_bytes) +
                    " bytes of a text of " + std::to_string(text.size()));
}

}  // namespace lamina
