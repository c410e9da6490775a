// A model's path, which is a folder or a GGUF file: its name, and what is at it.
#pragma once

#include <string>
#include <vector>

namespace lamina {

// What a model is called unless somebody gives it a name: its folder, or its GGUF file without
// ".gguf" and without the number of a shard. A snapshot in the cache of Hugging Face's tools,
// models--OWNER--NAME/snapshots/COMMIT, is called OWNER/NAME.
std::string ModelName(std::string path);

// "NAME SIZE TIME" of a file; 0 where it cannot be looked at.
std::string DescribeFile(const std::string& path);

// That of each file in the folder, or of each shard of the GGUF file, sorted. Equal before and
// after if no file was changed. Without the files of `lamina pack`, which change nothing.
std::vector<std::string> DescribeModelFiles(const std::string& path);

}  // namespace lamina
