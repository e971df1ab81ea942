// Search from disk: a page that was opened as a file may not start a worker. Its script runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      const load = (script) =>
        new Promise((resolve, reject) => {
          const element = frame.contentDocument.createElement("script");
          element.src = script;
          element.onload = resolve;
          element.onerror = reject;
          frame.contentDocument.body.appendChild(element);
        });
      this.inside.importScripts = (...scripts) =>
        scripts.reduce((before, script) => before.then(() => load(script)), Promise.resolve());
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded = load(url);
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
