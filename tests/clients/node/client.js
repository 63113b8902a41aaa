// kafkajs: see tests/clients/programs/contract.py.
import { readFileSync } from "node:fs";
import kafkajs from "kafkajs";

const { CompressionTypes, Kafka, Partitioners, logLevel } = kafkajs;
const [mode, bootstrap, topic, group, countText] = process.argv.slice(2);
const count = Number(countText);
const brokers = bootstrap.split(",");
const kafka = new Kafka({ brokers, logLevel: logLevel.ERROR, ...login() });
let wrong = 0;

function login() {
  const given = JSON.parse(process.env.SMQ_TEST_LOGIN ?? "{}");
  const file = (name) => given[name] && readFileSync(given[name]);
  const options = {};
  if ("ssl.ca.location" in given) {
    const [cert, key] = [file("ssl.certificate.location"), file("ssl.key.location")];
    options.ssl = { ca: file("ssl.ca.location"), cert, key };
  }
  if ("sasl.mechanism" in given) {
    const mechanism = given["sasl.mechanism"].toLowerCase();
    const [username, password] = [given["sasl.username"], given["sasl.password"]];
    const oauthBearerProvider = async () => ({ value: password });
    options.sasl =
      mechanism === "oauthbearer"
        ? { mechanism, oauthBearerProvider }
        : { mechanism, username, password };
  }
  return options;
}

async function produce() {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  const messages = Array.from({ length: count }, (_, number) => ({
    key: `k${number}`,
    value: `v${number}`,
    headers: { n: `v${number}` },
  }));
  await producer.send({ topic, messages, compression: CompressionTypes.GZIP, acks: -1 });
  await producer.disconnect();
}

function check(message) {
  const { key, value, headers } = message;
  const right =
    `${key}`.slice(1) === `${value}`.slice(1) &&
    Object.keys(headers).length === 1 &&
    `${headers.n}` === `${value}`;
  wrong += right ? 0 : 1;
}

async function read(wanted) {
  const consumer = kafka.consumer({ groupId: group });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const values = [];
  await new Promise((resolve, reject) => {
    consumer
      .run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          if (values.length === wanted) return;
          check(message);
          values.push(`${message.value}`);
          const offset = `${BigInt(message.offset) + 1n}`;
          await consumer.commitOffsets([{ topic, partition, offset }]);
          if (values.length === wanted) resolve();
        },
      })
      .catch(reject);
  });
  await consumer.disconnect();
  return values;
}

async function resume() {
  await produce();
  const first = await read(Math.floor(count / 2));
  const second = await read(count - first.length);
  console.log(JSON.stringify({ first, second, wrong }));
}

async function onlyRead() {
  const values = await read(count);
  console.log(JSON.stringify({ values, wrong }));
}

const modes = { resume, read: onlyRead };
if (!(mode in modes)) throw new Error(`there is no mode ${mode}`);
await modes[mode]();
