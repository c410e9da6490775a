// What GET /cluster/status answers: {"serving", "detail", "nodes": [...], "scheduler": {...}}.
#pragma once

#include <nlohmann/json.hpp>

#include "manager/engine.h"

namespace lamina {

nlohmann::ordered_json ClusterStatusJson(const EngineStatus& status);

}  // namespace lamina
