// The shared object that reads and writes Parquet files by Arrow.
#pragma once

#include "data/formats/parquet/parquet_output.h"
#include "data/formats/parquet/parquet_reader.h"

#include <cstdint>
#include <memory>
#include <string>

namespace trainopt {

/// Opens a Parquet file; the first call loads the shared object, and with it Arrow. Throws UserError(data) if there is
/// none, or if the file is damaged or of another kind.
std::unique_ptr<ParquetReader> open_parquet_reader(std::shared_ptr<const DataFile> file, int64_t memory_limit);

/// What Arrow says, on one line: its messages may have any bytes of a damaged file in them.
std::string readable(const char* message);

/// Begins a Parquet file. Throws UserError(data) if there is no shared object.
std::unique_ptr<ParquetOutput> create_parquet(ParquetSink sink);

}  // namespace trainopt
