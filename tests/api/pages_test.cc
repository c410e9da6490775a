// What the server says of its own paths, and its pages.
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/http_fixture.h"
#include "tests/support/paths.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class Pages : public HttpTest {
 protected:
  json Document() {
    const ClientResponse response = Get("/openapi.json");
    EXPECT_EQ(response.status, 200);
    return response.json();
  }

  static std::string InstanceOf(const std::string& path) {
    return std::regex_replace(path, std::regex("\\{model\\}"), "tiny");
  }
};

TEST_F(Pages, OpenApiNamesWhatIsAnswered) {
  options_.service.api_key = "sesame";
  StartServer();
  const json document = Document();
  EXPECT_EQ(document["openapi"], "3.1.0");
  ASSERT_GT(document["paths"].size(), 20u);
  for (const auto& [path, methods] : document["paths"].items()) {
    SCOPED_TRACE(path);
    ASSERT_EQ(methods.size(), 1u);
    const std::string method = methods.begin().key() == "get" ? "GET" : "POST";
    const json& operation = methods.begin().value();
    EXPECT_FALSE(operation["summary"].get<std::string>().empty());
    const std::string target = InstanceOf(path);
    const ClientResponse other = Request(method == "GET" ? "POST" : "GET", target, "");
    EXPECT_EQ(other.status, 405);
    EXPECT_EQ(other.headers.at("allow"), method);
    const bool needs_key = Request(method, target, method == "POST" ? "{}" : "").status == 401;
    EXPECT_EQ(needs_key, !operation["security"].empty());
    // Each field that has to be there is missed if it alone is absent.
    if (method != "POST") continue;
    const json& schema = operation["requestBody"]["content"]["application/json"]["schema"];
    for (const auto& absent : schema.value("required", json::array())) {
      json body = {{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", "x"}}}},
                   {"max_tokens", 1}, {"prompt", "x"},
                   {"input", "x"},    {"tokens", {5}},
                   {"query", "x"},    {"documents", {"x"}}};
      body.erase(absent.get<std::string>());
      const ClientResponse response =
          Request("POST", target, body.dump(), "Authorization: Bearer sesame\r\n");
      EXPECT_EQ(response.status, 400) << absent;
      EXPECT_THAT(response.body, HasSubstr("'" + absent.get<std::string>() + "' is missing"));
    }
  }
}

TEST_F(Pages, TheManualHasTheSamePaths) {
  StartServer();
  std::set<std::string> answered, documented;
  const json document = Document();
  for (const auto& [path, methods] : document["paths"].items())
    answered.insert((methods.contains("get") ? "GET " : "POST ") + path);
  std::ifstream file(SourcePath("/docs/api.md"));
  bool in_section = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) in_section = line == "## Paths";
    if (in_section && line.starts_with("| `"))
      documented.insert(line.substr(3, line.find('`', 3) - 3));
  }
  EXPECT_EQ(documented, answered);
}

TEST_F(Pages, RunNothingButTheirOwnScript) {
  StartServer();
  for (const char* path : {"/", "/docs"}) {
    const ClientResponse page = Get(path);
    ASSERT_EQ(page.status, 200);
    EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
    const std::string& policy = page.headers.at("content-security-policy");
    EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
    EXPECT_THAT(policy, HasSubstr("connect-src 'self'"));
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
    std::smatch nonce;
    ASSERT_TRUE(std::regex_search(policy, nonce, std::regex("script-src 'nonce-([0-9a-f]{32})'")));
    EXPECT_THAT(page.body, HasSubstr("<script nonce=\"" + nonce[1].str() + "\">"));
    EXPECT_THAT(page.body, HasSubstr("<style nonce=\"" + nonce[1].str() + "\">"));
    EXPECT_THAT(page.body, Not(HasSubstr("@NONCE@")));
    EXPECT_NE(Get(path).headers.at("content-security-policy"), policy) << "a nonce is used once";
    for (const char* other_host : {"http:", "https:", "//cdn", "src=", "@import", "url("})
      EXPECT_THAT(page.body, Not(HasSubstr(other_host)));
    for (const char* as_html : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                                "eval(", "new Function", " style=", " onclick="})
      EXPECT_THAT(page.body, Not(HasSubstr(as_html)));
    EXPECT_TRUE(page.body.ends_with("</html>\n"));
  }
}

}  // namespace
}  // namespace lamina::testing
