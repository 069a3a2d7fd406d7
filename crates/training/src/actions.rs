//! What can be done here, and by whom.

use falaj_base::{Action, Role};

pub static JOB_READ: Action =
    Action::read("job:read", Role::Viewer, "See jobs, why they wait, their logs and checkpoints");
pub static JOB_SUBMIT: Action =
    Action::write("job:submit", Role::Contributor, "Submit jobs").and_jobs();
pub static JOB_CANCEL: Action =
    Action::write("job:cancel", Role::Contributor, "Cancel jobs").and_jobs();
pub static JOB_REPORT: Action =
    Action::write("job:report", Role::Contributor, "Report steps and checkpoints of a job")
        .and_jobs();
pub static JOB_DELETE: Action =
    Action::write("job:delete", Role::Operator, "Delete jobs that have ended, with their output");
/// If it is not gone, it runs twice from then on.
pub static JOB_LOSE: Action = Action::write(
    "job:lose",
    Role::Operator,
    "Say that what a server ran that is away is gone for good",
);
/// What the platform's own worker does; nobody is asked for it.
pub static JOB_RUN: Action =
    Action::write("job:run", Role::Admin, "Start, stop and end jobs as the scheduler decides");
/// A job on the server's own machine is a command of the server's own user.
pub static POOL_USE: Action =
    Action::write("pool:use", Role::Admin, "Run commands as the server's own user");
pub static POOL_READ: Action =
    Action::read("pool:read", Role::Viewer, "See pools, their nodes and what is free");
/// Nodes belong to the platform, whoever may use them.
pub static NODE_WRITE: Action =
    Action::write("node:write", Role::Operator, "Say which nodes are there, and drain some");
pub static QUEUE_READ: Action = Action::read("queue:read", Role::Viewer, "See queues and quotas");
pub static QUEUE_WRITE: Action =
    Action::write("queue:write", Role::Operator, "Set quotas of queues of a tenant");
pub static TENANT_QUOTA_WRITE: Action = Action::write(
    "tenant-quota:write",
    Role::Admin,
    "Set what all queues of a tenant have together",
);
pub static BUDGET_READ: Action =
    Action::read("budget:read", Role::Viewer, "See budgets and what is spent of them")
        .and_auditor();
pub static BUDGET_WRITE: Action =
    Action::write("budget:write", Role::Operator, "Set what projects of a tenant may spend");
pub static TENANT_BUDGET_WRITE: Action = Action::write(
    "tenant-budget:write",
    Role::Admin,
    "Set what all projects of a tenant may spend together",
);
pub static COST_READ: Action =
    Action::read("cost:read", Role::Viewer, "See what jobs have used and cost").and_auditor();

pub static ACTIONS: &[&Action] = &[
    &JOB_READ,
    &JOB_SUBMIT,
    &JOB_CANCEL,
    &JOB_REPORT,
    &JOB_DELETE,
    &JOB_LOSE,
    &JOB_RUN,
    &POOL_USE,
    &POOL_READ,
    &NODE_WRITE,
    &QUEUE_READ,
    &QUEUE_WRITE,
    &TENANT_QUOTA_WRITE,
    &COST_READ,
    &BUDGET_READ,
    &BUDGET_WRITE,
    &TENANT_BUDGET_WRITE,
];
