// A real OpenID provider for the tests. `PORT=0 node server.mjs` prints the issuer it serves.
//
// Every path `/realm/NAME` is an issuer of its own, made when first asked for, so that tests that
// run side by side can each rotate keys and switch off a provider without meeting one another:
//   POST …/test/rotate        signs with a new key from now on; old keys stay published
//   POST …/test/outage?on=1   answers 503 to everything until told on=0
// Sign-in is the provider's own development page: any name is let in, the password is ignored,
// and a name such as `mona+staff+red` is put into the groups after its first `+`.
import http from 'node:http';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import Provider from 'oidc-provider';

const realms = new Map();

const newKey = () => {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), alg: 'RS256', use: 'sig' };
};

const groupsOf = (name) => name.split('+').slice(1);

const makeProvider = (issuer, keys) => new Provider(issuer, {
  jwks: { keys },
  cookies: { keys: [randomUUID()] },
  conformIdTokenClaims: false,
  claims: { openid: ['sub', 'groups'], profile: ['name'] },
  clients: [
    { client_id: 'falaj-web', client_secret: 'web-secret', response_types: ['code'],
      grant_types: ['authorization_code'], redirect_uris: ['http://127.0.0.1:7470/auth/oidc/callback'] },
    { client_id: 'falaj-machine', client_secret: 'machine-secret', response_types: [],
      grant_types: ['client_credentials'], redirect_uris: [] },
  ],
  findAccount: (_ctx, id) => ({
    accountId: id,
    claims: () => ({ sub: id, name: `${id} by name`, groups: groupsOf(id) }),
  }),
  extraTokenClaims: () => ({ groups: ['machines'] }),
  pkce: { required: () => true },
  features: {
    clientCredentials: { enabled: true },
    resourceIndicators: { enabled: true, defaultResource: () => undefined, getResourceServerInfo: (_ctx, resource) =>
      ({ scope: 'api', audience: resource, accessTokenTTL: 3600, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } }) },
  },
});

const server = http.createServer((request, response) => {
  const [, mount, path] = /^((?:\/realm\/[a-z0-9-]+)?)(.*)$/.exec(request.url);
  const issuer = `http://127.0.0.1:${server.address().port}${mount}`;
  const realm = realms.get(mount) ?? { keys: [newKey()], down: false };
  if (path === '/test/rotate') realm.keys = [newKey(), ...realm.keys];
  if (path.startsWith('/test/outage')) realm.down = path.endsWith('on=1');
  if (path === '/test/rotate' || !realm.provider) realm.provider = makeProvider(issuer, realm.keys);
  realms.set(mount, realm);
  if (path.startsWith('/test/') || realm.down) return response.writeHead(path.startsWith('/test/') ? 204 : 503).end();
  request.originalUrl = request.url;
  request.url = path || '/';
  return realm.provider.callback()(request, response);
});
server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
