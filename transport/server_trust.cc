#include "transport/server_trust.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "transport/tls_context.h"

namespace lamina {

Status TrustCas(SSL_CTX* context, const std::string& ca_file) {
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  ERR_clear_error();
  if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
    return InternalError("libssl has no TLS 1.2, " + TakeOpenSslReason());
  const int loaded = ca_file.empty() ? SSL_CTX_set_default_verify_paths(context)
                                     : SSL_CTX_load_verify_file(context, ca_file.c_str());
  if (loaded == 1) return OkStatus();
  return InvalidArgument(ca_file.empty()
                             ? "the certificates that this machine trusts cannot be read, " +
                                   TakeOpenSslReason()
                             : ca_file + " cannot be used as the file of the CA, " +
                                   TakeOpenSslReason() + "; it must hold certificates in PEM form");
}

Status ExpectHost(SSL* connection, const std::string& host) {
  X509_VERIFY_PARAM* const checks = SSL_get0_param(connection);
  X509_VERIFY_PARAM_set_hostflags(checks, kTlsNameFlags);
  const bool is_named = X509_VERIFY_PARAM_set1_ip_asc(checks, host.c_str()) == 1 ||
                        (SSL_set_tlsext_host_name(connection, host.c_str()) == 1 &&
                         X509_VERIFY_PARAM_set1_host(checks, host.data(), host.size()) == 1);
  ERR_clear_error();
  return is_named ? OkStatus()
                  : InvalidArgument("'" + host + "' cannot be the name in a certificate");
}

Status RefusalOf(SSL* connection, const std::string& authority) {
  const long verdict = SSL_get_verify_result(connection);
  ERR_clear_error();
  if (verdict == X509_V_OK) return OkStatus();
  // A CA of the same name with another key gives the last of these.
  const bool is_foreign = verdict == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY ||
                          verdict == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN ||
                          verdict == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT ||
                          verdict == X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE ||
                          verdict == X509_V_ERR_CERT_SIGNATURE_FAILURE;
  return InvalidArgument(
      "the certificate of " + authority + " is refused, " + X509_verify_cert_error_string(verdict) +
      (is_foreign
           ? "; install the package ca-certificates, or name the file of the CA that issued "
             "it (--ca; in a cluster's YAML cluster.https.ca, in a sweep's ca beside the url)"
           : "; nothing was sent to it"));
}

}  // namespace lamina
