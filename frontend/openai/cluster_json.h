// What GET /cluster/status answers: {"serving", "detail", "nodes": [...], "scheduler": {...}}.
#pragma once

#include <nlohmann/json.hpp>

#include "frontend/engine.h"

namespace lamina {

nlohmann::ordered_json ClusterStatusJson(const EngineStatus& status);

}  // namespace lamina
