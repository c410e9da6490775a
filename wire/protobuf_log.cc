#include "wire/protobuf_log.h"

#include <google/protobuf/stubs/common.h>
#include <google/protobuf/stubs/logging.h>

#include <string>

#include "base/log.h"

namespace lamina {

void TakeProtobufLog() {
  using google::protobuf::LogLevel;
  google::protobuf::SetLogHandler(
      [](LogLevel level, const char* file, int line, const std::string& message) {
        if (level == google::protobuf::LOGLEVEL_FATAL) {  // it ends the process
          LAMINA_LOG_ERROR("protobuf: {}:{}: {}", file, line, message);
        } else {
          LAMINA_LOG_DEBUG("protobuf: {}", message);
        }
      });
}

}  // namespace lamina
