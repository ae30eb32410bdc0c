// All paths are relative to this page, so that it works under any prefix.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#pawl",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  filter: true,
  showCommonExtensions: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});
