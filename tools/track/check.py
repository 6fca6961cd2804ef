"""What tools/track/check runs: see there."""

import json
import math
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = sys.argv[1]
STEPS = 12
# Seconds that something may take on a busy machine before it is called missing.
PATIENCE = 240
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "WANDB_SILENT": "true", "WANDB_DISABLE_SENTRY": "true"}


def environment(**more):
    """Without the user's own trackers."""
    mine = ("MLFLOW_", "WANDB_", "APPRISE_", "DISCORD_")
    return {k: v for k, v in os.environ.items() if not k.startswith(mine)} | QUIET | more


def plimsoll(*arguments, **more):
    done = subprocess.run([BINARY, *map(str, arguments)], env=environment(**more), capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        sys.exit(f"plimsoll {' '.join(map(str, arguments))} failed:\n{done.stderr}")
    return done.stdout


def train_arguments(run, steps, *more):
    return ["train", "recipes/quickstart.toml", "--device", "cpu", "--steps", steps, "--out", run, "--set", "data.samples=600",
            "--set", "train.effective_batch=8", "--set", "track.every=1", *more]


def events(run, kind=None):
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [event for event in lines if kind is None or event["event"] == kind]


def check(condition, what):
    if not condition:
        sys.exit(f"track/check: {what}")


def close(a, b):
    """Equal to the precision of f32, which TensorBoard keeps."""
    return (math.isnan(a) and math.isnan(b)) or abs(a - b) <= 1e-6 * max(1.0, abs(b))


class MlflowServer:
    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        store = f"sqlite:///{folder}/mlflow.db"
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port),
                   "--backend-store-uri", store, "--default-artifact-root", f"{folder}/artifacts", "--workers", "1"]
        self.log = open(folder / "mlflow.log", "w")
        self.process = subprocess.Popen(command, env=environment(), stdout=self.log, stderr=self.log, start_new_session=True)

    def wait(self):
        until = time.time() + PATIENCE
        while time.time() < until:
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=2).read()
                return
            except OSError:
                check(self.process.poll() is None, "MLflow's server ended: " + Path(self.log.name).read_text()[-2000:])
                time.sleep(0.2)
        sys.exit("track/check: MLflow's server does not answer")

    def stop(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(30)

    def ask(self, path, body=None, **query):
        url = f"{self.url}/api/2.0/mlflow/{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"content-type": "application/json"})
        return json.loads(urllib.request.urlopen(request, timeout=30).read())

    def runs(self, experiment):
        try:
            found = self.ask("experiments/get-by-name", experiment_name=experiment)["experiment"]["experiment_id"]
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return []
        return self.ask("runs/search", {"experiment_ids": [found]}).get("runs", [])

    def history(self, run, metric):
        return self.ask("metrics/get-history", run_id=run, metric_key=metric)["metrics"]


def check_mlflow(server, run):
    [found] = server.runs("quickstart")
    info, data = found["info"], found["data"]
    check(info["status"] == "FINISHED", f"status {info['status']}")
    check(info["run_name"] == run.name, f"name {info['run_name']}")
    params = {p["key"]: p["value"] for p in data["params"]}
    started = events(run, "started")[0]
    check(params["train.effective_batch"] == str(started["effective_batch"]), f"parameters {params}")
    check(params["plan.micro_batch"] == str(started["micro_batch"]), f"parameters {params}")
    check(not any(key.startswith(("track", "notify")) for key in params), "where it is told is no parameter")
    losses = {m["step"]: m["value"] for m in server.history(info["run_id"], "train_loss")}
    for step in events(run, "step"):
        check(close(losses[step["step"]], step["loss"]), f"loss of step {step['step']}: {losses[step['step']]} for {step['loss']}")
    check(len(losses) == STEPS, f"{len(losses)} losses")
    check(server.history(info["run_id"], "system/host_used_bytes"), "no system metrics")
    evaluations = {e["step"]: e["accuracy"] for e in events(run, "evaluation")}
    accuracies = {m["step"]: m["value"] for m in server.history(info["run_id"], "eval_accuracy")}
    check(evaluations and accuracies.keys() == evaluations.keys(), f"accuracies {accuracies} for {evaluations}")
    for step, accuracy in evaluations.items():
        check(close(accuracies[step], accuracy), f"accuracy at step {step}: {accuracies[step]} for {accuracy}")


def check_killed(server, folder):
    """A run that is killed without a word is FAILED, told by the process beside it."""
    run = folder / "killed-1"
    arguments = [BINARY, *map(str, train_arguments(run, 5000, "--mlflow", server.url, "--set", "track.experiment=killed"))]
    process = subprocess.Popen(arguments, env=environment(), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.time() + PATIENCE
    while time.time() < until and not (run / "track" / "mlflow.json").exists():
        time.sleep(0.1)
    process.kill()
    process.wait()
    while time.time() < until:
        runs = server.runs("killed")
        if runs and runs[0]["info"]["status"] == "FAILED":
            return
        time.sleep(0.3)
    sys.exit(f"track/check: the killed run is {[r['info']['status'] for r in server.runs('killed')]}")


def check_later(server, run):
    """Trained while nobody answered; told afterwards."""
    told = json.loads(plimsoll("follow", run, "--json", MLFLOW_TRACKING_URI=server.url))
    check(told == [{"sink": "mlflow", "left_bytes": 0, "trouble": ""}], f"{told}")
    [found] = server.runs("later")
    check(found["info"]["status"] == "FINISHED", "the late run is not finished")
    check(len(server.history(found["info"]["run_id"], "train_loss")) == STEPS, "the late run lacks steps")


def oom_errors(run):
    return [p["value"] for p in run["data"].get("params", []) if p["key"] == "oom_error"]


def check_out_of_memory(server, run, folder):
    """A run that lacked memory, told afterwards: FAILED, by the word for it."""
    died = folder / "died-1"
    died.mkdir()
    lines = [event for event in events(run) if event["event"] != "finished"]
    lines.append({"event": "failed", "time": time.time(), "step": STEPS, "reason": "no memory left", "oom": True})
    (died / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    recipe = (run / "recipe.toml").read_text()
    (died / "recipe.toml").write_text("".join(line for line in recipe.splitlines(True) if not line.startswith("mlflow = ")))
    told = json.loads(plimsoll("follow", died, "--json", MLFLOW_TRACKING_URI=server.url, MLFLOW_EXPERIMENT_NAME="died"))
    check(all(row["left_bytes"] == 0 and not row["trouble"] for row in told), f"{told}")
    [found] = server.runs("died")
    tags = {tag["key"]: tag["value"] for tag in found["data"]["tags"]}
    check(found["info"]["status"] == "FAILED" and oom_errors(found) == ["True"], f"a run without memory is {found}")
    check(tags["plimsoll.failure"] == "no memory left", f"{tags}")


def check_study(server, folder):
    """Trials are runs under their study's; one that fits nowhere is FAILED and says why."""
    recipe = folder / "search.toml"
    text = (ROOT / "recipes/quickstart.toml").read_text()
    recipe.write_text(text + '\n[search]\n"train.effective_batch" = [8, 65536]\n')
    settings = ["--set", "data.samples=600", "--set", "train.steps=4"]
    plan = json.loads(plimsoll("plan", recipe, "--device", "cpu", "--json", *settings, "--set", "train.effective_batch=8"))
    memory = plan["reserve_bytes"] + 2 * plan["arena_bytes"] + (16 << 20)
    plimsoll("tune", recipe, "--study", "nested", "--studies", folder / "studies", "--trials", 6, "--device", "cpu", "--memory", memory,
             "--parallel", 1, "--pruner", "none", *settings, "--set", "track.experiment=nested", MLFLOW_TRACKING_URI=server.url)
    runs = server.runs("nested")
    parents = {run["info"]["run_id"]: {tag["key"]: tag["value"] for tag in run["data"]["tags"]}.get("mlflow.parentRunId") for run in runs}
    [study] = [run for run in runs if parents[run["info"]["run_id"]] is None]
    check(study["info"]["run_name"] == "nested" and study["info"]["status"] == "FINISHED", f"{study['info']}")
    trials = [run for run in runs if run is not study]
    check(trials and all(parents[run["info"]["run_id"]] == study["info"]["run_id"] for run in trials), f"parents {parents}")
    for run in trials:
        params = {p["key"]: p["value"] for p in run["data"]["params"]}
        fits = params["train.effective_batch"] == "8"
        wanted = ("FINISHED", []) if fits else ("FAILED", ["True"])
        check((run["info"]["status"], oom_errors(run)) == wanted, f"a trial that fits: {fits} is {run['info']}, {oom_errors(run)}")
    check(len({run["info"]["status"] for run in trials}) == 2, "not both kinds of trials")


def certificates(folder):
    """Of a server at 127.0.0.1, and of whoever asks it, with their keys; each is its own authority."""
    from datetime import datetime, timedelta, timezone
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    for name in ["server", "own", "strange"]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(timezone.utc)
        address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        made = made.add_extension(address, False).sign(key, hashes.SHA256())
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        (folder / f"{name}.crt").write_bytes(made.public_bytes(pem))
        key = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        (folder / f"{name}.pem").write_bytes(made.public_bytes(pem) + key)


class Before(ThreadingHTTPServer):
    """Stands before MLflow's server and lets nobody in without the right certificate."""

    def __init__(self, server, folder):
        super().__init__(("127.0.0.1", 0), Passing)
        self.behind = server.url
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        context.load_verify_locations(folder / "own.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass


class Passing(BaseHTTPRequestHandler):
    def pass_on(self):
        length = int(self.headers.get("content-length", 0))
        data = self.rfile.read(length) if length else None
        asked = urllib.request.Request(self.server.behind + self.path, data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                status, body = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = pass_on

    def log_message(self, *_):
        pass


def check_certificate(server, run, folder):
    """A server that asks for a certificate is told by who has one."""
    certificates(folder)
    before = Before(server, folder)
    for name, grace, left in [("strange", 3, True), ("own", 60, False)]:
        copy = folder / f"certified-{name}"
        copy.mkdir()
        for file in ["events.jsonl", "recipe.toml"]:
            lines = (run / file).read_text().splitlines(True)
            (copy / file).write_text("".join(line for line in lines if not line.startswith("mlflow = ")))
        own = {"MLFLOW_TRACKING_SERVER_CERT_PATH": str(folder / "server.crt"), "MLFLOW_TRACKING_CLIENT_CERT_PATH": str(folder / f"{name}.pem")}
        more = {"MLFLOW_TRACKING_URI": before.url, "MLFLOW_EXPERIMENT_NAME": name} | own
        follow = subprocess.run([BINARY, "follow", str(copy), "--json", "--grace", str(grace)], env=environment(**more), capture_output=True, text=True, cwd=ROOT)
        [told] = [row for row in json.loads(follow.stdout) if row["sink"] == "mlflow"]
        check((told["left_bytes"] > 0) == left, f"with the certificate `{name}`: {told}, {follow.stderr}")
    before.shutdown()
    [found] = server.runs("own")
    check(found["info"]["status"] == "FINISHED" and not server.runs("strange"), f"{found['info']}")


class Receiver(ThreadingHTTPServer):
    """A webhook that is slow at first, then fails, then comes back."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Hook)
        self.asked, self.taken, self.lock = 0, [], threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, message):
        with self.lock:
            self.asked += 1
            turn = self.asked
        if turn == 1:
            time.sleep(3)
        if turn in (2, 3):
            return 503
        with self.lock:
            self.taken.append(message)
        return 200


class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(self.server.answer(body))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def check_receiver(folder):
    """A receiver that is slow, fails and comes back has every message once, in order, and costs no step."""
    receiver = Receiver()
    run = folder / "hooked-1"
    url = f"json://127.0.0.1:{receiver.server_address[1]}/hook"
    plimsoll(*train_arguments(run, STEPS), APPRISE_URLS=url)
    slowest = max(step["ms"] for step in events(run, "step"))
    check(slowest < 2500, f"a step took {slowest} ms: as long as the receiver")
    until = time.time() + PATIENCE
    while time.time() < until and not told_the_end(receiver.taken):
        plimsoll("follow", run, "--json", APPRISE_URLS=url)
    receiver.shutdown()
    check(receiver.asked > 3, f"asked {receiver.asked} times: it never failed")
    titles = [message.get("title", "") for message in receiver.taken]
    check(len(titles) >= 2 and len(set(titles)) == len(titles), f"messages {titles}")
    check("started" in titles[0] and told_the_end(receiver.taken), f"messages {titles}")


def told_the_end(messages):
    return any("finished" in json.dumps(message) for message in messages)


def check_tensorboard(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    tags = reader.Tags()
    losses = {e.step: (e.value, e.wall_time) for e in reader.Scalars("train/loss")}
    for step in events(run, "step"):
        value, wall = losses[step["step"]]
        check(close(value, step["loss"]) and wall == step["time"], f"TensorBoard has {value} at {wall} for {step}")
    check(len(losses) == STEPS and "eval/loss" in tags["scalars"], f"{tags}")
    text = reader.Tensors("run")[0].tensor_proto.string_val[0].decode()
    check("effective_batch" in text, f"text {text!r}")


def check_openmetrics(run):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    families = {f.name: f for f in text_string_to_metric_families(plimsoll("export-events", run, "--format", "openmetrics"))}
    last = events(run, "step")[-1]
    [steps] = families["plimsoll_steps"].samples
    check(steps.value == last["step"] and steps.labels == {"run": run.name}, f"{steps}")
    [loss] = families["plimsoll_train_loss"].samples
    check(loss.value == last["loss"], f"{loss}")
    count = [s for s in families["plimsoll_step_duration_seconds"].samples if s.name.endswith("_count")]
    check(count[0].value == STEPS, f"{count}")
    states = [s.labels["plimsoll_run_state"] for s in families["plimsoll_run_state"].samples if s.value == 1]
    check(states == ["completed"], f"{states}")


def check_scraped(run):
    """What a server of the run's folder says at /metrics, as Prometheus reads it."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    folder = run.parent / "scraped"
    folder.mkdir()
    shutil.copytree(run, folder / run.name)
    arguments = [BINARY, "serve", "--port", "0", "--runs", str(folder), "--data", str(folder), "--read-only"]
    server = subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder)
    try:
        with urllib.request.urlopen(server.stdout.readline().strip() + "metrics", timeout=60) as answer:
            kind, text = answer.headers["content-type"], answer.read().decode()
    finally:
        server.terminate()
        server.wait(30)
    check(kind.startswith("application/openmetrics-text"), kind)
    families = {f.name: f for f in text_string_to_metric_families(text)}
    [steps] = families["plimsoll_steps"].samples
    check(steps.value == events(run, "step")[-1]["step"] and steps.labels == {"run": run.name}, f"{steps}")
    planned = {s.labels["component"]: s.value for s in families["plimsoll_memory_planned_bytes"].samples}
    plan = json.loads((run / "plan.json").read_text())
    check(planned == plan["breakdown"] and sum(planned.values()) == plan["layout"]["live_peak_bytes"], f"{planned}")


def check_wandb(run, folder):
    exported = plimsoll("export-events", run)
    replay = [sys.executable, str(ROOT / "tools/track/replay.py"), "wandb", "--project", "p", "--mode", "offline"]
    done = subprocess.run(replay, input=exported, env=environment(WANDB_DIR=str(folder)), capture_output=True, text=True, timeout=120)
    check(done.returncode == 0, f"replay: {done.stderr}")
    [log] = folder.glob("wandb/offline-run-*/run-*.wandb")
    check(log.stat().st_size > 1000, f"{log} is nearly empty")
    text = log.read_bytes()
    for word in [b"train/loss", b"eval/accuracy", b"effective_batch", b"system/host_used_bytes"]:
        check(word in text, f"{word} is not in wandb's log")


def timed(name, function, *arguments):
    began = time.time()
    function(*arguments)
    print(f"{name}: {time.time() - began:.1f} s")


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        server = MlflowServer(folder)
        try:
            late = folder / "late-1"
            # Nobody listens on port 9: the run must not mind.
            plimsoll(*train_arguments(late, STEPS, "--mlflow", "http://127.0.0.1:9", "--set", "track.experiment=later"))
            (late / "recipe.toml").write_text((late / "recipe.toml").read_text().replace('mlflow = "http://127.0.0.1:9"\n', ""))
            server.wait()
            run = folder / "quickstart-1"
            timed("train", plimsoll, *train_arguments(run, STEPS, "--mlflow", server.url, "--tensorboard"))
            timed("MLflow", check_mlflow, server, run)
            timed("MLflow later", check_later, server, late)
            timed("MLflow of a killed run", check_killed, server, folder)
            timed("MLflow of a run without memory", check_out_of_memory, server, run, folder)
            timed("MLflow of a study", check_study, server, folder)
            timed("MLflow behind certificates", check_certificate, server, run, folder)
        finally:
            server.stop()
        timed("a receiver that fails and comes back", check_receiver, folder)
        timed("TensorBoard", check_tensorboard, run)
        timed("OpenMetrics", check_openmetrics, run)
        timed("OpenMetrics of a server", check_scraped, run)
        timed("wandb", check_wandb, run, folder)
    print("the trackers read what the run wrote")


if __name__ == "__main__":
    main()
