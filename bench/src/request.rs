//! What authentication, authorisation and audit add to a durable write.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use falaj_testkit::{Sandbox, Setup};

use crate::commit::per_second;
use crate::process;
use crate::report::{Goal, Report, median};
use crate::ungoverned;
use crate::wire::load;

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 5;
const RUN: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_millis(500);

/// One kind of request, measured.
struct Cost {
    cpu_micros: f64,
    rate: f64,
}

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let server = Setup::default().binary(std::env::current_exe()?).start().await?;
    let address: SocketAddr = server.url().trim_start_matches("http://").parse()?;
    let token = server.admin_token()?;
    let patch = |path: &str, credential: &str| {
        format!(
            "PATCH {path} HTTP/1.1\r\nHost: {address}\r\n{credential}\
             Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        )
    };
    let nothing = format!("GET /health/live HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let open = patch(ungoverned::PATH, "");
    let write = patch("/v1/tenants/default", &format!("Authorization: Bearer {token}\r\n"));

    // In turns: the machine may be faster or slower for a while, and that is to hit all of them.
    let requests = [&nothing, &open, &write];
    let mut costs = requests.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (request, costs) in requests.iter().zip(&mut costs) {
            costs.push(cost(&server, address, request)?);
        }
    }
    let [nothing, open, write] = costs.map(|costs| middle(&costs));
    for (name, cost) in [
        ("that does nothing", &nothing),
        ("write, unauthenticated and unrecorded", &open),
        ("write, authenticated and audited", &write),
    ] {
        report.note(&format!("request: {name}"), cost.rate, "requests/s");
        report.note(&format!("request: {name}, server CPU"), cost.cpu_micros, "µs");
    }
    let ratio = write.cpu_micros / open.cpu_micros;
    report.goal("request: audited / unauthenticated, CPU", ratio, "×", Goal::AtMost(2.0));
    Ok(())
}

fn middle(costs: &[Cost]) -> Cost {
    let of = |field: fn(&Cost) -> f64| median(&mut costs.iter().map(field).collect::<Vec<_>>());
    Cost { cpu_micros: of(|cost| cost.cpu_micros), rate: of(|cost| cost.rate) }
}

fn cost(server: &Sandbox, address: SocketAddr, request: &str) -> Result<Cost> {
    load(address, request, 200, CONNECTIONS, WARM_UP)?;
    let pid = server.pid().context("the server is not running")?;
    let (before, began) = (process::cpu_seconds(&[pid])?, Instant::now());
    let count = load(address, request, 200, CONNECTIONS, RUN)?;
    let (used, took) = (process::cpu_seconds(&[pid])? - before, began.elapsed());
    let rate = per_second(count, took);
    Ok(Cost { cpu_micros: used * 1e6 / (rate * took.as_secs_f64()), rate })
}
