#include "transport/name_lookup.h"

#include <boost/asio/io_context.hpp>
#include <future>
#include <memory>
#include <thread>

namespace lamina {

using boost::asio::ip::tcp;

Result<tcp::resolver::results_type> LookUp(const std::string& host, const std::string& port,
                                           Clock::duration timeout) {
  using Found = Result<tcp::resolver::results_type>;
  // Shared with a thread that may outlive this call.
  const auto work = std::make_shared<std::packaged_task<Found()>>([host, port]() -> Found {
    boost::asio::io_context io;
    boost::system::error_code error;
    auto found = tcp::resolver(io).resolve(host, port, error);
    if (error) return PeerLost("cannot resolve " + host + ": " + error.message());
    return found;
  });
  std::future<Found> found = work->get_future();
  std::thread([work] { (*work)(); }).detach();
  if (found.wait_for(timeout) != std::future_status::ready)
    return TimedOut("cannot resolve " + host + ": the system's look-up did not end within " +
                    std::to_string(std::chrono::duration_cast<milliseconds>(timeout).count()) +
                    " ms");
  return found.get();
}

}  // namespace lamina
