#include "device/sync_reports.h"

#include <utility>

namespace trainopt {

/// Passes other warnings on to the handler from before.
class SyncReports::Handler : public c10::WarningHandler {
 public:
  explicit Handler(std::function<void()> on_report)
      : on_report_(std::move(on_report)), outer_(c10::WarningUtils::get_warning_handler()) {}

  void process(const c10::Warning& warning) override {
    if (warning.msg().find("called a synchronizing CUDA operation") == std::string::npos)
      outer_->process(warning);
    else
      on_report_();
  }

 private:
  std::function<void()> on_report_;
  c10::WarningHandler* outer_;
};

SyncReports::SyncReports(std::function<void()> on_report)
    : handler_(std::make_unique<Handler>(std::move(on_report))),
      guard_(handler_.get()),
      were_on_(set_sync_warnings(true)) {}

SyncReports::~SyncReports() { set_sync_warnings(were_on_); }

SyncReports::OnThread::OnThread(const SyncReports& reports) : guard_(reports.handler_.get()) {}

}  // namespace trainopt
