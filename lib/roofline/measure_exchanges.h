// Measures the exchanges between the ranks of a job.
#pragma once

#include "comm/communicator.h"
#include "roofline/roofline.h"

#include <c10/core/Device.h>

namespace trainopt {

/// Each collective over sizes from 4 KiB to 16 MiB, and sends around the ring of ranks. Every rank must call it; all
/// get the times of the slowest. With one rank there is nothing to measure.
std::vector<ExchangePeak> measure_exchanges(Communicator& communicator, c10::Device device);

/// "gloo, 4 ranks on 2 machines"
std::string exchange_job(const std::string& backend, const RankPosition& position);

}  // namespace trainopt
