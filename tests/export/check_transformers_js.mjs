// Runs an exported model in transformers.js and prints the answers to texts as JSON:
// node check_transformers_js.mjs MODULE FOLDER MODEL CLASS DTYPE TEXT...
const [module, folder, name, kind, dtype, ...texts] = process.argv.slice(2);
const { env, AutoTokenizer, ...models } = await import(module);
env.allowRemoteModels = false;
env.localModelPath = folder;
const tokenizer = await AutoTokenizer.from_pretrained(name);
const model = await models[kind].from_pretrained(name, { dtype });
const answers = await model(await tokenizer(texts, { padding: true }));
const wanted = answers.logits ?? answers.sentence_embedding;
console.log(JSON.stringify(wanted.tolist()));
