// Search from disk: browsers refuse to start a Worker from file://, so there its script runs in a hidden frame.
// (Material's offline plugin would load such a replacement from another host; this page asks none.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.ready = new Promise((resolve) => (frame.onload = resolve));
      const answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.answer = answer;
      this.inside.document.open();
      this.inside.document.write(
        `<script>
           var postMessage = (data) => answer(data);
           var importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {
             const script = document.createElement("script");
             script.src = url;
             script.onload = done;
             document.body.appendChild(script);
           })), Promise.resolve());
         </` + `script><body><script src="${url}"></` + `script></body>`
      );
      this.inside.document.close();
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
