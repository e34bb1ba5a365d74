// A client written by hand on rhea: so many requests are out, and each reply sends the next.
const readline = require("node:readline");
const rhea = require("rhea");

const BODY = Buffer.from(Array.from({ length: 100 }, (_, at) => at));
const { vhost } = JSON.parse(process.argv[2]);
const broker = new URL(process.env.BENCHMARK_URI);
const [username, password] = [broker.username, broker.password].map(decodeURIComponent);
const { hostname: host, port } = broker;

const connection = rhea.connect({ host, port, username, password, hostname: `vhost:${vhost}`, reconnect: false });
const replies = connection.open_receiver({ source: "/queues/rhea-replies", credit_window: 200 });
const sender = connection.open_sender("/queues/rhea");
const waiting = new Set();
let number = 0;
let calls = 0;
let until = 0;
let done = () => {};

function send() {
  number += 1;
  waiting.add(number);
  const body = rhea.message.data_section(BODY);
  sender.send({ message_id: number, reply_to: "/queues/rhea-replies", body });
}

replies.on("message", ({ message }) => {
  if (BODY.compare(message.body.content)) throw new Error("an answer is not what was sent");
  if (!waiting.delete(message.correlation_id)) throw new Error("an answer to nothing");
  calls += 1;
  if (performance.now() < until) send();
  else if (!waiting.size) done();
});

async function serve() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [seconds, outstanding] = line.split(" ").map(Number);
    const [began, used] = [performance.now(), process.cpuUsage()];
    calls = 0;
    until = began + seconds * 1000;
    await new Promise((resolve) => {
      done = resolve;
      for (let at = 0; at < outstanding; at += 1) send();
    });
    const { user, system } = process.cpuUsage(used);
    const took = (performance.now() - began) / 1000;
    console.log(JSON.stringify({ calls, seconds: took, cpu: (user + system) / 1e6 }));
  }
  connection.close();
}

sender.once("sendable", serve);
