// The requests to a hub: which commit a revision is, which files it has, and their content.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "hub/blob_file.h"
#include "hub/https_client.h"
#include "hub/hub_answers.h"
#include "hub/hub_name.h"

namespace lamina {

struct HubOptions {
  std::string url = "https://huggingface.co";
  std::string token;  // "": none is sent
  HttpsOptions https;
  // Before a request is tried again: so long, then twice as long, and so on.
  Clock::duration retry_pause = std::chrono::seconds(1);
  int max_retries = 5;  // one after the other without any new byte
};

// Requests are tried again when the connection is lost, or the hub is busy. Thread: any.
class HubClient {
 public:
  // kInvalidArgument if the URL, the token or the CA's file cannot be used.
  static Result<std::unique_ptr<HubClient>> Create(const HubOptions& options);

  // kNotFound: the hub has no such model or revision, or does not show it without a token that has
  // access; kInvalidArgument: a gated model, a token or certificate that is refused; kPeerLost and
  // kTimeout: the hub cannot be reached; kCorrupt: it answers what no hub does; kTryAgain: it is
  // busy. Messages say what to do.
  Result<std::string> CommitOf(const HubName& name) const;
  Result<std::vector<HubFile>> FilesOf(const HubName& name, const std::string& commit) const;

  // Appends what `blob` lacks. `go_on` is asked before each request and after each part that has
  // been written, and its error ends the download. Errors as above, and those of BlobFile.
  Status Download(const HubName& name, const std::string& commit, const HubFile& file,
                  BlobFile& blob, const std::function<Status()>& go_on) const;

 private:
  HubClient(HubOptions options, HttpsUrl url, std::unique_ptr<HttpsClient> client)
      : options_(std::move(options)), url_(std::move(url)), client_(std::move(client)) {}

  HttpsUrl At(const std::string& path) const;
  Result<std::unique_ptr<HttpsResponse>> Ask(const HttpsUrl& url, const HubName& name,
                                             int64_t from_byte) const;
  Result<std::string> Answer(const HttpsUrl& url, const HubName& name, std::string* link) const;
  Status DownloadOnce(const HttpsUrl& url, const HubName& name, const HubFile& file, BlobFile& blob,
                      const std::function<Status()>& go_on) const;

  const HubOptions options_;
  const HttpsUrl url_;  // its target is "" or "/PREFIX", without a slash at its end
  const std::unique_ptr<HttpsClient> client_;
};

// What a status that is no success means, with what to do about it. `refusal`: the hub's own
// X-Error-Code and X-Error-Message.
struct HubRefusal {
  int status = 0;
  std::string code, message;
  bool has_token = false;
};
Status ToStatus(const HubRefusal& refusal, const HubName& name, const std::string& hub);

}  // namespace lamina
