#include "hub/hub_cache.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <tuple>

#include "base/text_file.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModels = "models--";
constexpr size_t kMaxRefBytes = 256;

// "" if it is not set.
std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string HomeFolder() {
  if (const std::string home = Environment("HOME"); !home.empty()) return home;
  const passwd* const user = getpwuid(getuid());
  return user == nullptr ? "/" : user->pw_dir;
}

std::string WithHome(const std::string& path) {
  return path == "~" || path.starts_with("~/") ? HomeFolder() + path.substr(1) : path;
}

// "" if the file has none.
std::string CommitIn(const std::string& ref_path) {
  Result<std::string> text = ReadTextFile(ref_path, kMaxRefBytes);
  if (!text.ok()) return "";
  while (!text->empty() && (text->back() == '\n' || text->back() == '\r')) text->pop_back();
  return IsCommit(*text) ? *text : "";
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::vector<std::string> FoldersIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (IsFolder(entry->path())) names.push_back(entry->path().filename().string());
  }
  return names;
}

// By commit. Where several revisions lead to one, main comes first.
std::map<std::string, std::string> RevisionsIn(const std::string& refs) {
  std::map<std::string, std::string> revisions;
  for (const std::string& revision : FilesBelow(refs)) {
    const std::string commit = CommitIn(refs + "/" + revision);
    if (!commit.empty() && (revision == "main" || !revisions.contains(commit)))
      revisions[commit] = revision;
  }
  return revisions;
}

}  // namespace

std::string HuggingFaceHome() {
  if (const std::string home = Environment("HF_HOME"); !home.empty()) return WithHome(home);
  const std::string xdg = Environment("XDG_CACHE_HOME");
  return (xdg.empty() ? HomeFolder() + "/.cache" : WithHome(xdg)) + "/huggingface";
}

HubCache HubCache::Default() {
  for (const char* variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string root = Environment(variable); !root.empty())
      return HubCache(WithHome(root));
  }
  return HubCache(HuggingFaceHome() + "/hub");
}

std::string HubCache::RepositoryFolder(const HubName& name) const {
  return root_ + "/" + std::string(kModels) + name.owner + "--" + name.name;
}

std::string HubCache::LockFolder(const HubName& name) const {
  return root_ + "/.locks/" + std::string(kModels) + name.owner + "--" + name.name;
}

std::string HubCache::RefPath(const HubName& name) const {
  return RepositoryFolder(name) + "/refs/" + name.revision;
}

Result<std::string> HubCache::Snapshot(const HubName& name) const {
  const std::string commit = IsCommit(name.revision) ? name.revision : CommitIn(RefPath(name));
  std::string folder = RepositoryFolder(name) + "/snapshots/" + commit;
  if (!commit.empty() && IsFolder(folder)) return folder;
  return NotFound(name.text() + " is not in the cache of models, " + root_ +
                  "; to download it: lamina pull " + name.text());
}

std::vector<CachedModel> HubCache::List() const {
  std::vector<CachedModel> models;
  for (const std::string& folder : FoldersIn(root_)) {
    if (!folder.starts_with(kModels)) continue;
    std::string text = folder.substr(kModels.size());
    const size_t separator = text.find("--");
    if (separator == std::string::npos) continue;
    const std::optional<HubName> name = HubName::Parse(text.replace(separator, 2, "/"));
    if (!name) continue;
    const std::string repository = root_ + "/" + folder;
    const std::map<std::string, std::string> revisions = RevisionsIn(repository + "/refs");
    for (const std::string& commit : FoldersIn(repository + "/snapshots")) {
      if (!IsCommit(commit)) continue;
      CachedModel model{*name, commit, repository + "/snapshots/" + commit};
      const auto revision = revisions.find(commit);
      model.name.revision = revision == revisions.end() ? commit : revision->second;
      models.push_back(std::move(model));
    }
  }
  std::ranges::sort(models, {}, [](const CachedModel& model) {
    return std::tuple(model.name.repository(), model.name.revision != "main", model.commit);
  });
  return models;
}

std::vector<std::string> FilesBelow(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored))
      files.push_back(entry->path().lexically_relative(folder).string());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace lamina
