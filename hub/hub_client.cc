#include "hub/hub_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "base/printable.h"

namespace lamina {
namespace {

constexpr size_t kMaxAnswerBytes = size_t{32} << 20;  // of a page of a tree, or of a model's card
constexpr auto kAnswerTime = std::chrono::minutes(2);
constexpr int kMaxPages = 1000;
constexpr size_t kMaxTokenBytes = 4096;

bool IsWorthAnotherTry(const Status& status) {
  return status.code() == StatusCode::kPeerLost || status.code() == StatusCode::kTimeout ||
         status.code() == StatusCode::kTryAgain;
}

// Calls `attempt` until it succeeds, fails for good, or has failed too often without `progress`
// having grown.
template <typename Attempt, typename Progress>
auto Retrying(const HubOptions& options, Attempt attempt, Progress progress)
    -> decltype(attempt()) {
  Clock::duration pause = options.retry_pause;
  int failures = 0;
  while (true) {
    const int64_t before = progress();
    auto result = attempt();
    Status status;
    if constexpr (std::is_same_v<decltype(result), Status>) {
      status = result;
    } else {
      status = result.status();
    }
    if (status.ok() || !IsWorthAnotherTry(status)) return result;
    if (progress() > before) {
      failures = 0;
      pause = options.retry_pause;
    }
    if (++failures > options.max_retries) return result;
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

int64_t NoProgress() { return 0; }

// Of "bytes 100-199/200": where the part begins and how long the whole is.
struct ContentRange {
  int64_t first = -1, total = -1;
};
ContentRange ParseContentRange(const std::string& header) {
  constexpr std::string_view kUnit = "bytes ";
  ContentRange range;
  const size_t dash = header.find('-'), slash = header.find('/');
  if (!header.starts_with(kUnit) || dash == std::string::npos || slash == std::string::npos)
    return range;
  const char* const text = header.data();
  std::from_chars(text + kUnit.size(), text + dash, range.first);
  std::from_chars(text + slash + 1, text + header.size(), range.total);
  return range;
}

}  // namespace

Status ToStatus(const HubRefusal& refusal, const HubName& name, const std::string& hub) {
  const std::string page = hub + "/" + name.repository();
  const std::string said =
      refusal.message.empty() ? "" : "; the hub says: " + Briefly(refusal.message, 300);
  const std::string get_token = "set HF_TOKEN to a token of an account that has access";
  if (refusal.code == "GatedRepo")
    return InvalidArgument(name.repository() + " is gated: accept its conditions at " + page +
                           (refusal.has_token ? " with the account that HF_TOKEN belongs to"
                                              : ", and set HF_TOKEN to a token of that account") +
                           said);
  if (refusal.code == "RevisionNotFound")
    return NotFound(name.repository() + " has no revision " + name.revision + "; " + page +
                    " lists those that it has");
  if (refusal.code == "EntryNotFound")
    return Corrupt(hub + " lists a file of " + name.text() + " that it does not have" + said);
  const bool is_hidden = refusal.code == "RepoNotFound" || refusal.status == 404 ||
                         (refusal.status == 401 && !refusal.has_token);
  if (is_hidden)
    return NotFound(hub + " has no model " + name.repository() +
                    ", or does not show it; check the name, and if it is private, " + get_token);
  if (refusal.status == 401 || refusal.status == 403)
    return InvalidArgument(
        fmt::format("{} refuses the token with {}; {}{}", hub, refusal.status, get_token, said));
  if (refusal.status == 429 || refusal.status >= 500)
    return TryAgain(
        fmt::format("{} answers {}: it is busy or out of order; run the same command "
                    "again later, which goes on where this one ended{}",
                    hub, refusal.status, said));
  return Corrupt(fmt::format("{} answers {} for {}{}", hub, refusal.status, name.text(), said));
}

Result<std::unique_ptr<HubClient>> HubClient::Create(const HubOptions& options) {
  Result<HttpsUrl> url = HttpsUrl::Parse(options.url);
  if (!url.ok()) return url.status().WithContext("the hub");
  while (url->target.ends_with('/')) url->target.pop_back();
  if (url->target.find('?') != std::string::npos)
    return InvalidArgument("the hub: '" + options.url + "' has a '?'");
  const bool is_token =
      std::ranges::all_of(options.token, [](char c) { return c > ' ' && c < '\x7f'; });
  if (!is_token || options.token.size() > kMaxTokenBytes)
    return InvalidArgument(
        "the token for the hub has characters that no token has; check HF_TOKEN");
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<HttpsClient> client, HttpsClient::Create(options.https));
  return std::unique_ptr<HubClient>(new HubClient(options, *std::move(url), std::move(client)));
}

HttpsUrl HubClient::At(const std::string& path) const {
  HttpsUrl url = url_;
  url.target += path;
  return url;
}

Result<std::unique_ptr<HttpsResponse>> HubClient::Ask(const HttpsUrl& url, const HubName& name,
                                                      int64_t from_byte) const {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<HttpsResponse> response,
                          client_->Get({url, options_.token, from_byte}));
  const int status = response->status();
  if (status == 200 || status == 206) return response;
  return ToStatus({status, response->Header("X-Error-Code"), response->Header("X-Error-Message"),
                   !options_.token.empty()},
                  name, url_.text());
}

Result<std::string> HubClient::Answer(const HttpsUrl& url, const HubName& name,
                                      std::string* link) const {
  return Retrying(
      options_,
      [&]() -> Result<std::string> {
        LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<HttpsResponse> response, Ask(url, name, 0));
        if (link != nullptr) *link = response->Header("Link");
        return ReadBody(*response, kMaxAnswerBytes, Deadline::After(kAnswerTime));
      },
      NoProgress);
}

Result<std::string> HubClient::CommitOf(const HubName& name) const {
  const HttpsUrl url = At("/api/models/" + name.repository() + "/revision/" +
                          PercentEncoded(name.revision, /*is_path=*/false));
  LAMINA_ASSIGN_OR_RETURN(const std::string answer, Answer(url, name, nullptr));
  return ParseCommit(answer, url.text());
}

Result<std::vector<HubFile>> HubClient::FilesOf(const HubName& name,
                                                const std::string& commit) const {
  HttpsUrl url = At("/api/models/" + name.repository() + "/tree/" + commit + "?recursive=true");
  std::vector<HubFile> files;
  for (int pages = 0; pages < kMaxPages; ++pages) {
    std::string link;
    LAMINA_ASSIGN_OR_RETURN(const std::string answer, Answer(url, name, &link));
    LAMINA_RETURN_IF_ERROR(ParseTree(answer, url.text(), files));
    const std::optional<std::string> next = NextPage(link);
    if (!next) return files;
    LAMINA_ASSIGN_OR_RETURN(HttpsUrl next_url, url.Follow(*next));
    // The token goes with the request, so it has to be the same hub's.
    if (next_url.origin() != url_.origin())
      return Corrupt(url.text() + " continues at " + next_url.origin() + ", another host");
    url = std::move(next_url);
  }
  return Corrupt(url_.text() + ": the list of files does not end");
}

Status HubClient::DownloadOnce(const HttpsUrl& url, const HubName& name, const HubFile& file,
                               BlobFile& blob, const std::function<Status()>& go_on) const {
  LAMINA_RETURN_IF_ERROR(go_on());
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<HttpsResponse> response,
                          Ask(url, name, blob.num_bytes()));
  if (response->status() == 206) {
    const ContentRange range = ParseContentRange(response->Header("Content-Range"));
    if (range.first != blob.num_bytes() || range.total != file.size)
      return Corrupt(fmt::format("{}: asked for the bytes from {} of {}, the server sends others",
                                 Printable(file.path), blob.num_bytes(), file.size));
  } else if (blob.num_bytes() > 0) {
    LAMINA_RETURN_IF_ERROR(blob.Restart());  // the server has no ranges and sends the whole file
  }
  while (true) {
    LAMINA_ASSIGN_OR_RETURN(const std::string_view bytes, response->Read());
    if (bytes.empty()) break;
    LAMINA_RETURN_IF_ERROR(blob.Append(bytes));
    LAMINA_RETURN_IF_ERROR(go_on());
  }
  if (blob.is_complete()) return OkStatus();
  return PeerLost(fmt::format("{}: the server sent {} of {} bytes", Printable(file.path),
                              blob.num_bytes(), file.size));
}

Status HubClient::Download(const HubName& name, const std::string& commit, const HubFile& file,
                           BlobFile& blob, const std::function<Status()>& go_on) const {
  if (blob.is_complete()) return OkStatus();
  const HttpsUrl url = At("/" + name.repository() + "/resolve/" + commit + "/" +
                          PercentEncoded(file.path, /*is_path=*/true));
  return Retrying(
      options_, [&] { return DownloadOnce(url, name, file, blob, go_on); },
      [&] { return blob.num_bytes(); });
}

}  // namespace lamina
