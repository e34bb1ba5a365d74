// A worker written by hand on rhea.
const rhea = require("rhea");

const { vhost } = JSON.parse(process.argv[2]);
const broker = new URL(process.env.BENCHMARK_URI);
const [username, password] = [broker.username, broker.password].map(decodeURIComponent);
const { hostname: host, port } = broker;

const connection = rhea.connect({ host, port, username, password, hostname: `vhost:${vhost}`, reconnect: false });
const sender = connection.open_sender({ target: {} });
const requests = connection.open_receiver({ source: "/queues/rhea", credit_window: 100 });
requests.on("message", ({ message }) => {
  const body = rhea.message.data_section(message.body.content);
  sender.send({ to: message.reply_to, correlation_id: message.message_id, body });
});
requests.once("receiver_open", () => console.log("ready"));
