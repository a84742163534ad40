#pragma once

#include <string>

namespace trainopt {

/// The address of this machine from which packets to `host`:`port` leave. Sends nothing. Throws UserError(peer) if the
/// name is not known.
std::string local_address_towards(const std::string& host, int port);

}  // namespace trainopt
